// The kernel for hundreds of tokens on Hopper (wide.cuh), as the host sees it.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/plan/wide_plan.h"

namespace tessera::cuda {

// Whether the kernel takes this call: like takes_panels(), with activations that the copy engine
// can load. A gated product ends by lines (wide_epilogue.cuh), so it needs kRoundedTokens tokens.
bool takes_wide(const LinearCall& call);
WidePlan plan_wide(const LinearCall& call);
void run_wide(const LinearCall& call, const WidePlan& plan, void* scratch);

}  // namespace tessera::cuda
