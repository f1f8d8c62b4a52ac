// The kernel for hundreds of rows of activations on Hopper (wide.cuh), from the host.
#pragma once

#include "cuda/linear/plan/wide_plan.h"
#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Whether it takes this product: as panels_take(), and activations that the copy engine can bring.
bool wide_takes(Context& ctx, const Product& product);
// The scratch that it takes, on a boundary of 16 bytes.
std::int64_t wide_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows);
void multiply_wide(Context& ctx, const Product& product, void* scratch);
// By a plan of one's own.
void multiply_wide_as(Context& ctx, const Product& product, const WidePlan& plan, void* scratch);

}  // namespace tessera::cuda
