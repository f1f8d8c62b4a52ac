// 1 / x by the special function unit: one unit in the last place, results below 2^-126 are zero.
// (cuda::ptx does not have it.)
#pragma once

namespace tessera::cuda {

__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::cuda
