#include "cuda/linear/plan/panel_plan.h"

#include <algorithm>

#include "cuda/linear/layout/tile_layout.h"

namespace tessera::cuda {
namespace {

// ---- what a plan costs --------------------------------------------------------------------------

// Microseconds on an H200, on top of the fixed cost of a call (docs/notebook/linear.md).
struct Costs {
  double pair, warpgroup;  // of a pair, and for each warpgroup that multiplies
  double exchange;         // of sums within a cluster
  double parts;            // of parts through memory
};
constexpr Costs kFewestTokens{.pair = 0.12, .warpgroup = 0.185, .exchange = 1.0, .parts = 3};
constexpr Costs kFewTokens{.pair = 0.12, .warpgroup = 0.224, .exchange = 1.1, .parts = 3.8};
constexpr Costs kManyTokens{.pair = 0.3, .warpgroup = 0.292, .exchange = 1.1, .parts = 6};

double cost_of(const PanelPlan& plan, int pairs) {
  const Costs& costs = plan.tokens == 32   ? kFewestTokens
                       : plan.tokens == 64 ? kFewTokens
                                           : kManyTokens;
  const double pair = costs.pair + costs.warpgroup * ((plan.panel_tiles + 3) / 4);
  if (plan.split > 0) {
    return (pairs + plan.split - 1) / plan.split * pair + (plan.split > 1 ? costs.exchange : 0);
  }
  const std::int64_t all = plan.tiles() * pairs;
  return static_cast<double>((all + plan.blocks - 1) / plan.blocks) * pair + costs.parts;
}

// ---- plans --------------------------------------------------------------------------------------

PanelPlan tiles_of(const PanelSizes& sizes, int panel_tiles) {
  const int tokens = panel_tokens(sizes.m);
  return {.tokens = tokens,
          .token_blocks = blocks_of(sizes.m, tokens),
          .panel_tiles = panel_tiles,
          .panels = blocks_of(sizes.tiles, panel_tiles)};
}

// How many clusters run at the same time. A cluster stays within one part of the GPU, and a part
// may have multiprocessors left over: an H200, with 132, has room for 66 clusters of 2, 30 of 4, 15
// of 8.
int clusters_at_once(int split, int multiprocessors) {
  return split <= 2 ? multiprocessors / split : multiprocessors * 11 / 12 / split;
}

}  // namespace

PanelPlan plan_even_panels(const PanelSizes& sizes) {
  PanelPlan plan = tiles_of(sizes, kPanelTiles);
  plan.blocks = even_sharers(plan.tiles(), sizes.pairs, sizes.multiprocessors);
  plan.scratch_bytes = std::int64_t{plan.blocks} * kPanelTiles * kTileHeight * plan.tokens * 4;
  return plan;
}

PanelPlan plan_panels(const PanelSizes& sizes) {
  const PanelPlan even = plan_even_panels(sizes);
  PanelPlan best = even;
  double least = cost_of(best, sizes.pairs);
  static_assert(kPanelTiles % 2 == 0);
  const int step = sizes.gated ? 2 : 1;
  for (int panel_tiles = kPanelTiles; panel_tiles > 0; panel_tiles -= step) {
    for (const int split : kPanelSplits) {
      PanelPlan plan = tiles_of(sizes, panel_tiles);
      plan.split = split;
      if (split > sizes.pairs || plan.tiles() > clusters_at_once(split, sizes.multiprocessors)) {
        continue;
      }
      plan.blocks = static_cast<int>(plan.tiles()) * split;
      const double cost = cost_of(plan, sizes.pairs);
      if (cost < least) best = plan, least = cost;  // among equals, the highest panels
    }
  }
  // With fewer tokens, tiles may be shared evenly even if with this many they are not.
  best.scratch_bytes = even.scratch_bytes;
  return best;
}

}  // namespace tessera::cuda
