// Matrix products by cuBLASLt.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// out [M, N] = x [M, K] weight [N, K]^T, none of them empty, each with rows of any stride that is
// no less than their length. x and weight are of one float dtype, out of the same or f32. Sums are
// in f32 (for f32 factors in true f32, without TF32), and the same bits every time.
void matmul(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& out);

// What it takes of the workspace at most, whatever the shapes.
std::int64_t matmul_scratch_bytes();

}  // namespace tessera::cuda
