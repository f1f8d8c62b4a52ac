// The dense attention kernel (dense.cuh) as the host sees it: f16 and bf16 on every GPU from sm_80
// on, rows at equal distances, full, causal and window masks.
#pragma once

#include "cuda/attention/kernel.h"

namespace tessera::cuda::dense {

// Can the kernel compute this call, and is it meant for it?
bool takes(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda::dense
