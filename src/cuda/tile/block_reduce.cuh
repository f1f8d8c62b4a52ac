// One value from all threads of a block, in a fixed order: the same bits every time.
//
//   32 lanes   tile/warp.cuh: every lane holds its warp's value
//   warps      lane 0 of each writes it to shared memory; every thread then folds all of them
#pragma once

#include "cuda/tile/warp.cuh"

namespace tessera::cuda {

// `warps` is the block's number of warps. All threads call it, and all get the result.
template <int warps, typename T, typename Fold>
__device__ T block_reduce(T value, Fold fold) {
  __shared__ T of_warp[warps];
  value = warp_reduce(value, fold);
  __syncthreads();  // other warps may still read the last call's values
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (int w = 1; w < warps; ++w) value = fold(value, of_warp[w]);
  return value;
}

// The sum over the threads before this one, and over all; exact for whole numbers. All threads of a
// block of `warps` warps call it.
template <typename T>
struct Scanned {
  T before, total;
};
template <int warps, typename T>
__device__ Scanned<T> block_scan(T value) {
  __shared__ T of_warp[warps];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  T sum = value;  // of the lanes up to this one
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const T other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();  // other warps may still read the last call's values
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  T before = 0, total = 0;
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  return {before + sum - value, total};
}

}  // namespace tessera::cuda
