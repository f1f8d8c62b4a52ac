// Numbers for reports.
#pragma once

#include <cmath>

namespace tessera::bench {

inline double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace tessera::bench
