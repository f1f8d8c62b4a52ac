#include "cuda/linear/plan/wide_plan.h"

#include <algorithm>

namespace tessera::cuda {
namespace {

// Microseconds on an H200, beside what every call costs (docs/results/h200/linear.md): of a pair of
// slabs, and of parts through memory.
constexpr double kPairCost = 1.45, kPartsCost = 10;

WidePlan sizes_of(std::int64_t weight_tiles, std::int64_t rows) {
  constexpr int kHeight = kWideCluster * kWideTiles;
  return {.token_blocks = static_cast<int>((rows + kWideTokens - 1) / kWideTokens),
          .panels = static_cast<int>((weight_tiles + kHeight - 1) / kHeight)};
}

int clusters_at_once(int multiprocessors) { return std::max(1, multiprocessors / kWideCluster); }

}  // namespace

WidePlan plan_even_wide(std::int64_t weight_tiles, int pairs, std::int64_t rows,
                        int multiprocessors) {
  WidePlan plan = sizes_of(weight_tiles, rows);
  // A tile's sums are added up by one block: no more than five parts, of at least four pairs.
  const std::int64_t least = std::max(4, (pairs + 3) / 4);
  const std::int64_t most = std::max(plan.tiles(), plan.tiles() * pairs / least);
  plan.clusters = static_cast<int>(std::min<std::int64_t>(most, clusters_at_once(multiprocessors)));
  plan.shared = true;
  return plan;
}

WidePlan plan_wide(std::int64_t weight_tiles, int pairs, std::int64_t rows, int multiprocessors) {
  const WidePlan even = plan_even_wide(weight_tiles, pairs, rows, multiprocessors);
  WidePlan whole = sizes_of(weight_tiles, rows);
  const std::int64_t room = clusters_at_once(multiprocessors);
  const std::int64_t rounds = (whole.tiles() + room - 1) / room;
  whole.clusters = static_cast<int>(std::min(whole.tiles(), room));
  const double even_pairs =
      static_cast<double>((even.tiles() * pairs + even.clusters - 1) / even.clusters);
  const double whole_cost = static_cast<double>(rounds * pairs) * kPairCost;
  return even_pairs * kPairCost + kPartsCost < whole_cost ? even : whole;
}

}  // namespace tessera::cuda
