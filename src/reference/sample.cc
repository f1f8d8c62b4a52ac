#include "reference/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/philox.h"

namespace tessera::reference {

std::vector<double> distribution(const std::vector<double>& x, const Filters& f) {
  std::vector<std::size_t> order(x.size());  // most likely first; among equals, the lower id first
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  std::vector<double> p(x.size(), 0.0);
  if (f.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  const std::size_t k =
      f.top_k > 0 ? std::min(static_cast<std::size_t>(f.top_k), x.size()) : x.size();
  const auto weight = [&](std::size_t i) { return std::exp((x[i] - x[order[0]]) / f.temperature); };
  double total = 0;
  for (std::size_t r = 0; r < k; ++r) total += weight(order[r]);
  double head = 0;
  for (std::size_t r = 0; r < k && head < f.top_p * total; ++r) {
    head += weight(order[r]);
    if (weight(order[r]) >= f.min_p) p[order[r]] = weight(order[r]);
  }
  const double kept = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= kept;
  return p;
}

std::int32_t drawn_token(const std::vector<double>& p, std::uint64_t seed, std::uint64_t draw) {
  const PhiloxWords w = philox(seed, {static_cast<std::uint32_t>(draw),
                                      static_cast<std::uint32_t>(draw >> 32), 0, 0x5A3717E5u});
  const double u = static_cast<double>(((std::uint64_t{w[1]} << 32) | w[0]) >> 11) * 0x1p-53;
  double sum = 0;
  std::int32_t token = -1;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    token = static_cast<std::int32_t>(i);
    sum += p[i];
    if (u < sum) break;
  }
  return token;
}

}  // namespace tessera::reference
