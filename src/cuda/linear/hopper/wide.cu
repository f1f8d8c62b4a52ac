// The host's side of wide.cuh.
#include "cuda/linear/hopper/wide.h"

#include <algorithm>

#include "cuda/linear/hopper/panel_args.h"
#include "cuda/linear/hopper/wide_kernels.h"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/plan/wide_plan.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

using Planner = WidePlan(std::int64_t, int, std::int64_t, int);

// A counter is a warp's flag, and of those there are so many.
constexpr int kMostBlocks = State::kSlotCounters / kWideMultiplyWarps;

WidePlan plan_of(Context& ctx, const Weight& weight, std::int64_t rows, Planner& planner) {
  return planner(weight.data.shape[0], pairs_of(weight), rows,
                 std::min(state_of(ctx).limits().multiprocessors, kMostBlocks));
}

PanelWork work_of(const WidePlan& plan, int pairs) {
  if (plan.shared) return even_work(plan.tiles(), pairs, plan.token_blocks, plan.clusters);
  return {.pairs = pairs,
          .token_blocks = plan.token_blocks,
          .whole_tiles = static_cast<int>(plan.tiles())};
}

}  // namespace

bool wide_takes(Context& ctx, const Product& product) {
  return takes_panels(ctx, product) && has_boxed_x(product);
}

std::int64_t wide_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows) {
  // With fewer rows tiles may be shared evenly where with so many they are not.
  const WidePlan plan = plan_of(ctx, product.weight, rows, plan_even_wide);
  return std::int64_t{plan.clusters} * kWideCluster * kWideTiles * kTileHeight * kWideTokens * 4;
}

void multiply_wide_as(Context& ctx, const Product& product, const WidePlan& plan, void* scratch) {
  const PanelArgs args =
      panel_args(ctx, product, {.tokens = kWideTokens / kWideCluster, .tiles = kWideTiles},
                 work_of(plan, pairs_of(product.weight)), scratch);
  const Grid grid{.blocks = std::int64_t{plan.clusters} * kWideCluster,
                  .threads = kWideThreads,
                  .shared_bytes = 0,  // of the kernel that is chosen
                  .overlaps = true,
                  .cluster = kWideCluster};
  const auto start = product.x.dtype == DType::f16 ? wide_f16 : wide_bf16;
  start(Launch(ctx, "linear"), grid, product.weight.format, scale_mode(product.weight), args);
}

void multiply_wide(Context& ctx, const Product& product, void* scratch) {
  const std::int64_t rows = as_matrix(product.x)->shape[0];
  multiply_wide_as(ctx, product, plan_of(ctx, product.weight, rows, plan_wide), scratch);
}

}  // namespace tessera::cuda
