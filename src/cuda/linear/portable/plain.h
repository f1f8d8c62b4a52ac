// The plain kernels of linear() on a GPU (plain.cu), for any shape.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera::cuda {

// product [M, N] = x W^T in f32, contiguous. Decodes as it multiplies: for any format
// and any dtype, exact in the weights, and meant for few tokens.
inline constexpr std::int64_t kPlainTokens = 8;
void multiply_few(Context& ctx, const Tensor& x, const Weight& weight, float* product);

// The rows of a tensor, converted, into a contiguous matrix of as many elements.
void pack_rows(Context& ctx, const Tensor& from, const Tensor& to);

}  // namespace tessera::cuda
