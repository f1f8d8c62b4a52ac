// Matrix products by cuBLASLt.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// What is added to a product before it is rounded. Each may be missing.
struct Addends {
  Tensor bias{};      // [N]
  Tensor residual{};  // [M, N]; may be the output
};

// out [M, N] = x [M, K] weight [N, K]^T + addends, none of them empty, each with rows of any stride
// that is no less than their length. x and weight are of one float dtype, out of the same or f32.
// Sums are in f32 (for f32 factors in true f32, without TF32), and the same bits every time.
// Addends are such as matmul_adds() takes.
void matmul(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& out,
            const Addends& addends = {});

// Whether the library adds these to a product for this output itself: they have its dtype, and all
// lie on boundaries of 16 bytes.
bool matmul_adds(const Tensor& out, const Addends& addends);

// What it takes of the workspace at most, whatever the shapes.
std::int64_t matmul_scratch_bytes();

}  // namespace tessera::cuda
