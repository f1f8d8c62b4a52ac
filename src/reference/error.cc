#include "reference/error.h"

#include <cmath>

namespace tessera::reference {

double relative_error(const Array& actual, const Array& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double d = actual.data[i] - expected.data[i];
    difference += d * d;
    norm += expected.data[i] * expected.data[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace tessera::reference
