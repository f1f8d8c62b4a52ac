// Sine and cosine of an angle between -pi and pi by the hardware's units, off by 2^-21 at most: far
// less than the rounding of a 16-bit number.
#pragma once

#include "cuda/rotary/rope.cuh"

namespace tessera::cuda {

__device__ inline CosSin fast_cos_sin(float radians) {
  CosSin rotation;
  __sincosf(radians, &rotation.sin, &rotation.cos);
  return rotation;
}

}  // namespace tessera::cuda
