#include "reference/rotary.h"

#include <cmath>

namespace tessera::reference {

Array rotary(const Array& x, const Array& positions, const Array& inv_freq, RopeStyle style) {
  Array out = x;
  const std::int64_t pairs = inv_freq.size(0);
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t s = 0; s < x.size(1); ++s) {
      const double position = positions.shape.size() == 1 ? positions.at(s) : positions.at(b, s);
      for (std::int64_t h = 0; h < x.size(2); ++h) {
        for (std::int64_t i = 0; i < pairs; ++i) {
          const bool half_split = style == RopeStyle::half_split;
          const std::int64_t first = half_split ? i : 2 * i;
          const std::int64_t second = half_split ? i + pairs : 2 * i + 1;
          const double angle = position * inv_freq.at(i);
          const double a = x.at(b, s, h, first), c = x.at(b, s, h, second);
          out.at(b, s, h, first) = a * std::cos(angle) - c * std::sin(angle);
          out.at(b, s, h, second) = c * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  }
  return out;
}

}  // namespace tessera::reference
