// Which block of a group comes last: it can then work on what all of them have written, without a
// second kernel.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Called by all threads of each of `blocks` blocks, once, when they have written their part. True
// in the block that comes last, for all its threads: it sees what the others have written, and
// leaves the counter, which must have been zero, at zero.
__device__ inline bool comes_last(std::int32_t* counter, int blocks) {
  __shared__ bool last;
  __threadfence();  // what this thread has written is seen before the count is
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace tessera::cuda
