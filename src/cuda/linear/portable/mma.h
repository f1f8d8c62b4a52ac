// The kernel for some dozens of rows of activations on any GPU since Ampere (mma.cuh), from the
// host.
#pragma once

#include "cuda/linear/plan/mma_plan.h"
#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Whether it takes this product: weights in tiles, activations in f16 or bf16, gate and up of one
// kind; and matrices (matrix.h).
bool mma_takes(const Product& product);
// What there is to do, by which plans are made.
MmaWork mma_work(Context& ctx, const Product& product);
// The scratch that it takes for so many rows or fewer, on a boundary of 16 bytes.
std::int64_t mma_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows);
void multiply_mma(Context& ctx, const Product& product, void* scratch);
// By a plan of the caller's, which says how much scratch there is.
void multiply_mma(Context& ctx, const Product& product, const MmaPlan& plan, void* scratch);

}  // namespace tessera::cuda
