// The value at a share of the sorted values: 0.5 is the median.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera::bench {

inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::lround(at))];
}

}  // namespace tessera::bench
