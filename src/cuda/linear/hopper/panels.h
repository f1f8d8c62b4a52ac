// The kernel for many rows of activations on Hopper (panels.cuh), from the host.
#pragma once

#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Whether it takes this product: weights in tiles, activations in f16 or bf16, a GPU of compute
// capability 9.0, no gated pair; and matrices (matrix.h).
bool panels_take(Context& ctx, const Product& product);
// The scratch that it takes, on a boundary of 16 bytes.
std::int64_t panels_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows);
void multiply_panels(Context& ctx, const Product& product, void* scratch);

}  // namespace tessera::cuda
