// Replaces src/cuda/tile/last_block.cuh: blocks run one after the other.
#pragma once

#include <cstdint>

namespace tessera::cuda {

inline bool comes_last(std::int32_t* counter, int blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = ++*counter == blocks;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace tessera::cuda
