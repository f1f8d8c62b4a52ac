// Replaces src/cuda/tile/reciprocal.cuh.
#pragma once

#include <cmath>
#include <limits>

namespace tessera::cuda {

inline float fast_reciprocal(float x) {
  const float y = 1.f / x;
  return std::fabs(y) < std::numeric_limits<float>::min() ? 0.f : y;  // NaN stays
}

}  // namespace tessera::cuda
