// 2^x by the special function unit: two units in the last place, results below 2^-126 are zero.
// exp2f() handles those with two more instructions, which a softmax does not need.
// (cuda::ptx does not have it.)
#pragma once

namespace tessera::cuda {

__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::cuda
