// One value from all lanes of a warp, in a fixed order: xor-shuffles, 5 steps, so that every lane
// holds the same bits. For the four lanes of a quad see quad.cuh, for a block block_reduce.cuh.
#pragma once

namespace tessera::cuda {

inline constexpr int kWarp = 32;

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// All lanes of a warp call it, and all get the result.
template <typename T, typename Fold>
__device__ T warp_reduce(T value, Fold fold) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fold(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

}  // namespace tessera::cuda
