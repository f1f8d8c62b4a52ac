// cuda.hopper and cuda.split together, for a ragged batch: prompts beside sequences that decode.
// Both run over the whole batch, and each skips the sequences that suit the other.
#pragma once

#include "cuda/attention/kernel.h"

namespace tessera::cuda {

bool takes_hopper_and_split(const AttentionRequest& request);
AttentionPlan plan_hopper_and_split(const AttentionRequest& request);
void run_hopper_and_split(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda
