// The host's side of panels.cuh.
#include "cuda/linear/hopper/panels.h"

#include <algorithm>

#include "cuda/linear/hopper/panel_args.h"
#include "cuda/linear/hopper/panel_kernels.h"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/plan/panel_plan.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// ---- how much there is --------------------------------------------------------------------------

using Planner = PanelPlan(std::int64_t, int, std::int64_t, int);

// A counter is a warp's flag, and of those there are so many.
constexpr int kMostBlocks = State::kSlotCounters / kPanelWarps;

PanelPlan plan_of(Context& ctx, const Weight& weight, std::int64_t rows, Planner& planner) {
  return planner(weight.data.shape[0], pairs_of(weight), rows,
                 std::min(state_of(ctx).limits().multiprocessors, kMostBlocks));
}

PanelWork work_of(const PanelPlan& plan, int pairs) {
  if (plan.split > 0) {
    return {.pairs = pairs,
            .token_blocks = plan.token_blocks,
            .split = plan.split,
            .split_groups = (plan.tokens / 8 + plan.split - 1) / plan.split};
  }
  return even_work(plan.tiles(), pairs, plan.token_blocks, plan.blocks);
}

}  // namespace

bool panels_take(Context& ctx, const Product& product) { return takes_panels(ctx, product); }

std::int64_t panels_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows) {
  // With fewer rows tiles may be shared evenly where with so many they are not.
  const PanelPlan plan = plan_of(ctx, product.weight, rows, plan_even_panels);
  return std::int64_t{plan.blocks} * kPanelTiles * kTileHeight * plan.tokens * 4;
}

void multiply_panels(Context& ctx, const Product& product, void* scratch) {
  const PanelPlan plan = plan_of(ctx, product.weight, as_matrix(product.x)->shape[0], plan_panels);
  const PanelArgs args =
      panel_args(ctx, product, {.tokens = plan.tokens, .tiles = plan.panel_tiles},
                 work_of(plan, pairs_of(product.weight)), scratch);
  const Grid grid{.blocks = plan.blocks,
                  .threads = kPanelThreads,
                  .shared_bytes = 0,  // of the kernel that is chosen
                  .overlaps = true,
                  .cluster = std::max(1, plan.split)};
  const auto start = product.x.dtype == DType::f16 ? panels_f16 : panels_bf16;
  start(Launch(ctx, "linear"), grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
