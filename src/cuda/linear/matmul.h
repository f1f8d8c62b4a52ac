// Matrix products by cuBLASLt.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// The tensors added to a product before it is rounded. Each may be missing.
struct Addends {
  Tensor bias{};      // [N]
  Tensor residual{};  // [M, N]; may be the output
};

// out [M, N] = x [M, K] weight [N, K]^T + addends. No tensor is empty; rows have any stride that is
// at least their length. x and weight have one float dtype, out has the same or f32. Sums are in
// f32 (for f32 factors in true f32, without TF32), with the same bits every time. matmul_adds() is
// true of the addends.
void matmul(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& out,
            const Addends& addends = {});

// Whether the library itself can add these to a product for this output: they have its dtype, and
// all are aligned to 16 bytes.
bool matmul_adds(const Tensor& out, const Addends& addends);

// The most workspace that matmul() takes, whatever the shapes.
std::int64_t matmul_scratch_bytes();

}  // namespace tessera::cuda
