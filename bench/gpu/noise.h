// Random tensors, made on the GPU: one block of noise is uploaded and repeated.
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
  // Roughly normal, with this standard deviation.
  Noise(Context& ctx, float deviation);

  // A matrix [rows, cols]; different seeds give different numbers. The block's length is prime, so
  // rows do not repeat in a regular pattern.
  Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::uint32_t seed) const;

 private:
  Context& ctx_;
  Buffer block_;
};

// The same elements in f32, contiguous. `matrix` is [rows, cols] with any stride from row to row.
Matrix in_f32(Context& ctx, const Tensor& matrix);
// |a - b| / |b| over all elements of two contiguous f32 matrices; NaN if a holds one.
double relative_error(Context& ctx, const Tensor& a, const Tensor& b);

}  // namespace tessera::bench
