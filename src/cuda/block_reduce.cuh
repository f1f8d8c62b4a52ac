// One value from all threads of a block, in a fixed order: the same bits every time.
//
//   32 lanes   xor-shuffles, 5 steps: every lane holds its warp's value
//   warps      lane 0 of each writes it to shared memory; every thread then folds all of them
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

// `warps` is the block's number of warps. All threads call it, and all get the result.
template <int warps, typename T, typename Fold>
__device__ T block_reduce(T value, Fold fold) {
  __shared__ T of_warp[warps];
  value = warp_reduce(value, fold);
  __syncthreads();  // whoever still reads the last call's values
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (int w = 1; w < warps; ++w) value = fold(value, of_warp[w]);
  return value;
}

}  // namespace tessera::cuda
