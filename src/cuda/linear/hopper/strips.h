// The kernel for a few tokens on Hopper (strips.cuh), as the host sees it.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/plan/strip_plan.h"

namespace tessera::cuda {

// Whether the kernel takes this call: like takes_panels(), with up to kMostStripTokens tokens, in
// whole slabs that the copy engine can read.
bool takes_strips(const LinearCall& call);
StripPlan plan_strips(const LinearCall& call);
void run_strips(const LinearCall& call, const StripPlan& plan);

}  // namespace tessera::cuda
