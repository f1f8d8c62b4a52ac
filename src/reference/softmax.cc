#include "reference/softmax.h"

#include <algorithm>
#include <cmath>

namespace tessera::reference {

Array softmax(const Array& x, double scale) {
  const std::size_t n = static_cast<std::size_t>(x.size(-1));
  Array out(x.shape);
  for (std::size_t row = 0; row < x.data.size(); row += n) {
    const double* begin = x.data.data() + row;
    const double* end = begin + n;
    if (std::all_of(begin, end, [](double v) { return v == -INFINITY; })) continue;
    const double largest = *std::max_element(begin, end);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::exp(scale * (begin[i] - largest));
    for (std::size_t i = 0; i < n; ++i) {
      out.data[row + i] = std::exp(scale * (begin[i] - largest)) / sum;
    }
  }
  return out;
}

}  // namespace tessera::reference
