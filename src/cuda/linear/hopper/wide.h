// The kernel for hundreds of tokens on Hopper (wide.cuh), from the host.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/plan/wide_plan.h"

namespace tessera::cuda {

// Whether it takes this call: as takes_panels(), and activations that the copy engine can bring. A
// gated product ends by lines (wide_epilogue.cuh): from kRoundedTokens on.
bool takes_wide(const LinearCall& call);
WidePlan plan_wide(const LinearCall& call);
void run_wide(const LinearCall& call, const WidePlan& plan, void* scratch);

}  // namespace tessera::cuda
