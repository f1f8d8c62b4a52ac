// The host's side of wide.cuh.
#include "cuda/linear/hopper/wide.h"

#include "cuda/linear/hopper/panel_args.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/wide_kernels.h"
#include "cuda/linear/layout/scales.cuh"

namespace tessera::cuda {
namespace {

PanelWork work_of(const WidePlan& plan, int pairs) {
  if (plan.shared) return even_work(plan.tiles(), pairs, plan.token_blocks, plan.clusters);
  return {.pairs = pairs,
          .token_blocks = plan.token_blocks,
          .whole_tiles = static_cast<int>(plan.tiles())};
}

}  // namespace

bool takes_wide(const LinearCall& call) {
  return takes_panels(call) && has_boxed_x(call.product) &&
         (!call.product.gated() || ends_by_lines(call));
}

WidePlan plan_wide(const LinearCall& call) {
  return plan_wide(panel_sizes(call, kWideMultiplyWarps));
}

void run_wide(const LinearCall& call, const WidePlan& plan, void* scratch) {
  const Product& product = call.product;
  const int tiles = product.gated() ? kWideTiles / 2 : kWideTiles;
  const PanelArgs args = panel_args(call, {.tokens = kWideTokens / kWideCluster, .tiles = tiles},
                                    work_of(plan, pairs_of(product.weight)), scratch);
  const Grid grid{.blocks = std::int64_t{plan.clusters} * kWideCluster,
                  .threads = kWideThreads,
                  .shared_bytes = 0,  // set by the chosen kernel
                  .overlaps = true,
                  .cluster = kWideCluster};
  const auto start = product.x.dtype == DType::f16 ? wide_f16 : wide_bf16;
  start(Launch(call.ctx, "linear"), grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
