#include "cuda/attention/plain/plain.h"

namespace tessera::cuda::plain {

bool takes(const AttentionRequest&) { return true; }

AttentionPlan plan(const AttentionRequest& request) { return AttentionPlan(request); }

void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame&) {
  launch_attention(ctx, plan.call);
}

}  // namespace tessera::cuda::plain
