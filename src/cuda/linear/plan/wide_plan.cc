#include "cuda/linear/plan/wide_plan.h"

#include <algorithm>

#include "cuda/linear/layout/tile_layout.h"

namespace tessera::cuda {
namespace {

// Microseconds on an H200, on top of the fixed cost of a call (docs/notebook/linear.md): for a pair
// of slabs, and for passing parts through memory.
constexpr double kPairCost = 1.45, kPartsCost = 10;

WidePlan tiles_of(const PanelSizes& sizes) {
  return {.token_blocks = blocks_of(sizes.m, kWideTokens),
          .panels = blocks_of(sizes.tiles, kWideCluster * kWideTiles)};
}

int clusters_at_once(int multiprocessors) { return std::max(1, multiprocessors / kWideCluster); }

}  // namespace

WidePlan plan_even_wide(const PanelSizes& sizes) {
  WidePlan plan = tiles_of(sizes);
  plan.clusters = even_sharers(plan.tiles(), sizes.pairs, clusters_at_once(sizes.multiprocessors));
  plan.shared = true;
  plan.scratch_bytes =
      std::int64_t{plan.clusters} * kWideCluster * kWideTiles * kTileHeight * kWideTokens * 4;
  return plan;
}

WidePlan plan_wide(const PanelSizes& sizes) {
  const WidePlan even = plan_even_wide(sizes);
  WidePlan whole = tiles_of(sizes);
  const std::int64_t room = clusters_at_once(sizes.multiprocessors);
  const std::int64_t rounds = (whole.tiles() + room - 1) / room;
  whole.clusters = static_cast<int>(std::min(whole.tiles(), room));
  // With fewer tokens, tiles may be shared evenly even if with this many they are not.
  whole.scratch_bytes = even.scratch_bytes;
  const double even_pairs =
      static_cast<double>((even.tiles() * sizes.pairs + even.clusters - 1) / even.clusters);
  const double whole_cost = static_cast<double>(rounds * sizes.pairs) * kPairCost;
  return even_pairs * kPairCost + kPartsCost < whole_cost ? even : whole;
}

}  // namespace tessera::cuda
