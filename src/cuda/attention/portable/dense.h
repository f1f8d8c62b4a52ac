// The dense attention kernel (dense.cuh) as the host sees it: f16 and bf16 on every GPU from sm_80
// on, equally spaced rows, full, causal and window masks.
#pragma once

#include "cuda/attention/kernel.h"

namespace tessera::cuda::dense {

// Whether the kernel can run this call and is meant for it.
bool takes(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda::dense
