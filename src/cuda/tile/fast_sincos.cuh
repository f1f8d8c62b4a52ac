// Sine and cosine of an angle between -pi and pi by the hardware's units, off by 2^-21 at most: far
// less than a number of 16 bits can tell.
#pragma once

#include "cuda/rotary/rope.cuh"

namespace tessera::cuda {

__device__ inline CosSin fast_cos_sin(float radians) {
  CosSin rotation;
  __sincosf(radians, &rotation.sin, &rotation.cos);
  return rotation;
}

}  // namespace tessera::cuda
