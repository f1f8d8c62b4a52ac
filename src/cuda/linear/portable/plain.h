// The plain kernels of linear() on a GPU (plain.cu), for any shape.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera::cuda {

// product [M, N] = x W^T in f32, contiguous. Decodes as it multiplies. Takes any format and dtype,
// uses exact weights, and is meant for few tokens.
inline constexpr std::int64_t kPlainTokens = 8;
void multiply_few(Context& ctx, const Tensor& x, const Weight& weight, float* product);

// Converts the rows of a tensor into a contiguous matrix with as many elements.
void pack_rows(Context& ctx, const Tensor& from, const Tensor& to);

}  // namespace tessera::cuda
