// The host's side of panels.cuh.
#include "cuda/linear/hopper/panels.h"

#include <algorithm>

#include "cuda/linear/hopper/panel_args.h"
#include "cuda/linear/hopper/panel_kernels.h"
#include "cuda/linear/layout/scales.cuh"

namespace tessera::cuda {
namespace {

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

PanelPlan plan_panels(const LinearCall& call) {
  return plan_panels(panel_sizes(call, kPanelWarps));
}

void run_panels(const LinearCall& call, const PanelPlan& plan, void* scratch) {
  const Product& product = call.product;
  const int tiles = product.gated() ? plan.panel_tiles / 2 : plan.panel_tiles;
  const PanelArgs args = panel_args(call, {.tokens = plan.tokens, .tiles = tiles},
                                    work_of(plan, pairs_of(product.weight)), scratch);
  const Grid grid{.blocks = plan.blocks,
                  .threads = kPanelThreads,
                  .shared_bytes = 0,  // set by the chosen kernel
                  .overlaps = true,
                  .cluster = std::max(1, plan.split)};
  const bool f16 = product.x.dtype == DType::f16;
  const auto start = product.gated() ? (f16 ? panels_gated_f16 : panels_gated_bf16)
                                     : (f16 ? panels_f16 : panels_bf16);
  start(Launch(call.ctx, "linear"), grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
