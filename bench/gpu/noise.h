// Random tensors on a GPU, made there: one block of noise is uploaded and repeated.
#pragma once

#include <cstdint>

#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::bench {

struct Matrix {
  Buffer buffer{};
  Tensor view{};
};

class Noise {
 public:
  // About normal, with this standard deviation.
  Noise(Context& ctx, float deviation);

  // [rows, cols]; another seed, other numbers. The block's length is prime, so that rows do not
  // come again in any regular way.
  Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::uint32_t seed) const;

 private:
  Context& ctx_;
  Buffer block_;
};

// The same elements in f32, contiguous. `matrix` is [rows, cols] with any stride from row to row.
Matrix in_f32(Context& ctx, const Tensor& matrix);
// |a - b| / |b| over all elements of two contiguous f32 matrices. NaN where a has one.
double relative_error(Context& ctx, const Tensor& a, const Tensor& b);

}  // namespace tessera::bench
