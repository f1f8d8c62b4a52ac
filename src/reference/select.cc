#include "reference/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::reference {

Selected top_k(const Array& x, std::int64_t k) {
  const std::int64_t n = x.size(-1);
  std::vector<std::int64_t> shape = x.shape;
  shape.back() = k;
  Selected result{Array(shape), Array(shape)};
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; n > 0 && row < x.numel() / n; ++row) {
    const double* values = x.data.data() + row * n;
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      if (std::isnan(values[b])) return false;
      return std::isnan(values[a]) || values[a] > values[b];
    });
    for (std::int64_t i = 0; i < k; ++i) {
      result.values.data[row * k + i] = values[order[i]];
      result.indices.data[row * k + i] = static_cast<double>(order[i]);
    }
  }
  return result;
}

}  // namespace tessera::reference
