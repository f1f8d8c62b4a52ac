#include "cuda/attention/hopper_and_split.h"

#include "cuda/attention/hopper/hopper.h"
#include "cuda/attention/portable/split_and_mma.h"

namespace tessera::cuda {

bool takes_hopper_and_split(const AttentionRequest& request) {
  return split::takes_mixed(request) && hopper_takes(request);
}

AttentionPlan plan_hopper_and_split(const AttentionRequest& request) {
  AttentionPlan plan = split::plan_mixed(request);
  plan.hopper = plan_hopper(request).hopper;
  plan.hopper.few_rows = kFewRows;
  return plan;
}

void run_hopper_and_split(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  run_hopper(ctx, plan, frame);
  split::run(ctx, plan, frame);
}

}  // namespace tessera::cuda
