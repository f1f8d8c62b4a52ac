// The kernel for a few rows of activations on Hopper (strips.cuh), from the host.
#pragma once

#include "cuda/linear/plan/strip_plan.h"
#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Whether it takes so many rows of this product: what cuda.panels takes (panels.h), of up to
// kMostStripRows rows of whole slabs that the copy engine can read; and so many features that most
// multiprocessors have some, unless rows are short.
bool strips_take(Context& ctx, const Product& product, std::int64_t rows);
StripPlan strips_plan(Context& ctx, const Product& product);
void multiply_strips(Context& ctx, const Product& product);

}  // namespace tessera::cuda
