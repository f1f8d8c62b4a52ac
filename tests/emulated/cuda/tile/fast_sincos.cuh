// Replaces src/cuda/tile/fast_sincos.cuh.
#pragma once

#include <cmath>

#include "cuda/rotary/rope.cuh"

namespace tessera::cuda {

inline CosSin fast_cos_sin(float radians) { return {std::cos(radians), std::sin(radians)}; }

}  // namespace tessera::cuda
