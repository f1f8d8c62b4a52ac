#include "cuda/linear/plan/mma_plan.h"

#include <algorithm>

namespace tessera::cuda {
namespace {

// A tile has no more parts than this, each of at least this many pairs.
constexpr int kMostParts = 8, kFewestPairs = 4;

// Microseconds on an H200 (docs/notebook/linear.md).
struct Costs {
  int tokens;
  double pair, sharer;  // of a multiprocessor: a block's pairs, one of each warp; activations of
                        // one sharer
  double alone;         // extra time with one block instead of all that run at once
  int at_once;          // blocks that a multiprocessor runs at once
};
constexpr Costs kCosts[] = {{.tokens = 32, .pair = 1.25, .sharer = 0, .alone = 1.5, .at_once = 2},
                            {.tokens = 64, .pair = 1.7, .sharer = 0.15, .alone = 1, .at_once = 1},
                            {.tokens = 128, .pair = 2.6, .sharer = 0.65, .alone = 1, .at_once = 1}};
// The cost of passing parts through memory, and of each byte that a tile's last block reads.
constexpr double kParts = 5, kPartByte = 1 / 40e3;

double cost_of(const MmaPlan& plan, const MmaWork& work, const Costs& costs) {
  const int rounds = (plan.blocks + work.multiprocessors - 1) / work.multiprocessors;
  const int sharers = 1 << plan.sharers_log2;
  const int units = plan.block_units + (plan.longer > 0 ? 1 : 0);
  const double loop = rounds * ((units + sharers - 1) / sharers) *
                      (costs.pair + costs.sharer * sharers) * (rounds == 1 ? costs.alone : 1);
  if (plan.whole_tiles()) return loop;
  const std::int64_t parts = plan.blocks / plan.tiles() + 1;
  return loop + kParts + kPartByte * static_cast<double>(parts * plan.tokens * plan.features() * 4);
}

}  // namespace

MmaPlan mma_plan_of(const MmaWork& work, int tokens, int sharers_log2, std::int64_t blocks) {
  MmaPlan plan{.tokens = tokens, .sharers_log2 = sharers_log2};
  plan.token_blocks = static_cast<int>((work.m + plan.tokens - 1) / plan.tokens);
  plan.feature_blocks = static_cast<int>((work.n + plan.features() - 1) / plan.features());
  plan.units = static_cast<int>(plan.tiles() * work.pairs);
  plan.blocks = static_cast<int>(std::clamp<std::int64_t>(blocks, 1, plan.units));
  plan.block_units = plan.units / plan.blocks;
  plan.longer = plan.units % plan.blocks;
  return plan;
}

int mma_shared_bytes(const MmaWork& work, const MmaPlan& plan) {
  const int sharers = 1 << plan.sharers_log2;
  const int stages =
      kMmaStages * (sharers * mma_stage_bytes(plan.tokens) + kMmaWarps * 2 * work.tile_bytes);
  const int sums = sharers * mma_pass_tokens(plan.tokens) * mma_sum_pitch(plan.features()) * 4;
  return std::max(stages, sums) + work.table_bytes;
}

MmaPlan plan_mma(const MmaWork& work) {
  MmaPlan best{};
  double least = 0;
  for (const Costs& costs : kCosts) {
    for (const int sharers_log2 : {0, 1}) {
      // A block for each tile, or as many blocks as run at once, unless a tile would have too many
      // parts.
      const MmaPlan one = mma_plan_of(work, costs.tokens, sharers_log2, 1);
      if (mma_shared_bytes(work, one) > work.shared_bytes) continue;
      const std::int64_t at_once = std::int64_t{costs.at_once} * work.multiprocessors;
      const std::int64_t most = one.tiles() * std::clamp(work.pairs / kFewestPairs, 1, kMostParts);
      const bool shared = one.tiles() <= kMmaSharedTiles;
      for (const std::int64_t blocks :
           {one.tiles(), shared ? std::min(at_once, most) : one.tiles()}) {
        const MmaPlan plan = mma_plan_of(work, costs.tokens, sharers_log2, blocks);
        const double cost = cost_of(plan, work, costs);
        if (best.blocks == 0 || cost < least) best = plan, least = cost;
      }
    }
  }
  return best;
}

std::int64_t most_mma_part_floats(const MmaWork& work) {
  std::int64_t most = 0;
  for (const Costs& costs : kCosts) {
    const std::int64_t blocks = std::int64_t{costs.at_once} * work.multiprocessors;
    most = std::max(most, 2 * blocks * costs.tokens * kMmaWarps * kMmaWarpFeatures);
  }
  return most;
}

}  // namespace tessera::cuda
