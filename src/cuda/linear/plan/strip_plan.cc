#include "cuda/linear/plan/strip_plan.h"

#include <algorithm>

#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/slots.h"

namespace tessera::cuda {
namespace {

int in_multiples(int value, int of) { return (value + of - 1) / of * of; }

// Lays out shared memory (StripPlaces). The plan has no stages if they do not fit.
void give_memory(StripPlan& plan, const StripSizes& sizes) {
  const int tokens = strip_tokens(sizes.m);
  plan.zeros_at = in_multiples(plan.tiles * sizes.scale_bytes, 128);  // as the copy engine requires
  plan.stage_bytes = in_multiples(tokens * kPair * 2 + plan.tiles * sizes.code_bytes +
                                      plan.zeros_at + plan.tiles * sizes.zero_bytes,
                                  1024);
  constexpr int kToAlign = 1024, kBarriers = 2 * 8;  // of a stage
  const int floats = plan.warps() * slot_size(tokens) + plan.tiles * kTileHeight * 2;
  const int besides = kToAlign + floats * 4 + sizes.table_bytes;
  constexpr int kMostStages = 32;  // more are never in flight at the same time
  const int room =
      std::min(kMostStages, (sizes.shared_bytes - besides) / (plan.stage_bytes + kBarriers));
  plan.stages = room / plan.shares * plan.shares;
  plan.shared_bytes = besides + plan.stages * (plan.stage_bytes + kBarriers);
}

// The cost of a block, in pairs of one tile. Fewer warps hide fewer of each other's waits: measured
// on an H200, 1.2% for each warp (docs/notebook/linear.md). A round is worth eight pairs.
double cost_of(const StripPlan& plan, const StripSizes& sizes) {
  const int rounds = (plan.items() + sizes.multiprocessors - 1) / sizes.multiprocessors;
  const int turns = in_multiples(sizes.pairs, plan.shares) * plan.tiles;
  return rounds * (8 + turns * (1 + 0.012 * (kMostStripWarps - plan.warps())));
}

}  // namespace

StripPlan plan_strips(const StripSizes& sizes) {
  StripPlan best;
  double least = 0;
  const int groups = strip_groups(sizes.m);
  const int in_a_round = sizes.multiprocessors * kMostStripWarps;
  const int fewest = (sizes.tiles * groups + in_a_round - 1) / in_a_round;
  for (int rounds = fewest; rounds <= fewest + 1; ++rounds) {
    const int most_strips = std::max(1, sizes.multiprocessors * rounds / groups);
    const int tiles = (sizes.tiles + most_strips - 1) / most_strips;
    const int strips = (sizes.tiles + tiles - 1) / tiles;
    for (int shares = 1; tiles * shares <= kMostStripWarps && shares <= sizes.pairs; ++shares) {
      StripPlan plan{.tiles = tiles,
                     .shares = shares,
                     .strips = strips,
                     .groups = groups,
                     .blocks = std::min(strips * groups, sizes.multiprocessors)};
      give_memory(plan, sizes);
      if (plan.stages < 2 * shares) continue;  // one arrives while another is in use
      const double cost = cost_of(plan, sizes);
      if (best.tiles == 0 || cost < least) best = plan, least = cost;
    }
  }
  return best;
}

}  // namespace tessera::cuda
