// Replaces src/cuda/tile/exp2.cuh.
#pragma once

#include <cmath>
#include <limits>

namespace tessera::cuda {

inline float fast_exp2(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.f : y;  // NaN stays
}

}  // namespace tessera::cuda
