// The plain attention kernel (plain.cu) as the host sees it. It takes every call.
#pragma once

#include "cuda/attention/kernel.h"

namespace tessera::cuda::plain {

bool takes(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda::plain
