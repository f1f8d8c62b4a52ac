// The kernel for a few tokens on Hopper (strips.cuh), from the host.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/plan/strip_plan.h"

namespace tessera::cuda {

// Whether it takes this call: as takes_panels(), with up to kMostStripTokens tokens of whole slabs
// that the copy engine can read.
bool takes_strips(const LinearCall& call);
StripPlan plan_strips(const LinearCall& call);
void run_strips(const LinearCall& call, const StripPlan& plan);

}  // namespace tessera::cuda
