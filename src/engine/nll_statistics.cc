// Means and standard errors of scored tokens: over all, over pairs of settings, and by position.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/fail.h"
#include "tessera/perplexity.h"

namespace tessera {
namespace {

double mean_of(std::span<const float> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double block_standard_error(std::span<const float> values) {
  constexpr std::size_t kBlock = 256, kLeastBlocks = 16;
  const std::size_t n = values.size();
  if (n < 2) return 0;
  const std::size_t block = std::clamp(n / kLeastBlocks, std::size_t{1}, kBlock);
  const std::size_t blocks = n / block;
  std::vector<double> means(blocks);
  for (std::size_t b = 0; b < blocks; ++b) means[b] = mean_of(values.subspan(b * block, block));
  const double count = static_cast<double>(blocks);
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / count;
  double squares = 0;
  for (const double m : means) squares += (m - mean) * (m - mean);
  return std::sqrt(squares / (count - 1) / count);
}

PairedDifferences paired_differences(const PerplexityResult& result, const PerplexityResult& base) {
  PairedDifferences pairs;
  std::size_t b = 0;
  for (std::size_t i = 0; i < result.positions.size(); ++i) {
    while (b < base.positions.size() && base.positions[b] < result.positions[i]) ++b;
    if (b == base.positions.size()) break;
    if (base.positions[b] != result.positions[i]) continue;
    pairs.positions.push_back(result.positions[i]);
    pairs.values.push_back(result.nlls[i] - base.nlls[b]);
  }
  pairs.mean = mean_of(pairs.values);
  pairs.error = block_standard_error(pairs.values);
  return pairs;
}

std::vector<PositionBucket> by_position(std::span<const std::int64_t> positions,
                                        std::span<const float> values, std::int64_t bucket) {
  if (bucket < 1) {
    fail(ErrorCode::invalid_argument, "a bucket of {} positions was asked for; it needs at least 1",
         bucket);
  }
  if (positions.size() != values.size()) {
    fail(ErrorCode::invalid_argument, "{} positions were given for {} values", positions.size(),
         values.size());
  }
  std::vector<PositionBucket> buckets;
  for (std::size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    const std::int64_t first = positions[begin] / bucket * bucket;
    while (end < positions.size() && positions[end] < first + bucket) ++end;
    const std::span<const float> inside = values.subspan(begin, end - begin);
    buckets.push_back({.begin = first,
                       .end = first + bucket,
                       .tokens = static_cast<std::int64_t>(inside.size()),
                       .mean = mean_of(inside),
                       .error = block_standard_error(inside)});
  }
  return buckets;
}

}  // namespace tessera
