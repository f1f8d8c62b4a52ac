// The second stream of a Context (core/branch.h).
#include "core/cuda_runtime.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {

BranchStream begin_branch(Context& ctx) {
  State& state = state_of(ctx);
  std::unique_ptr<SideStream>& side = state.side();
  if (!side) side = make_side_stream(ctx.device());
  side->begin(ctx);
  state.set_in_branch(true);
  return {side->stream(), &state.side_scratch()};
}

void end_branch(Context& ctx) {
  State& state = state_of(ctx);
  state.set_in_branch(false);
  state.side()->end();
}

void join_branch(Context& ctx) { state_of(ctx).side()->join(ctx); }

}  // namespace tessera::cuda
