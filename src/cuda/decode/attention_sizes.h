// Sizes of attention in the persistent kernel (attention.cuh).
#pragma once

#include "core/host_device.h"
#include "cuda/decode/call.h"

namespace tessera::cuda::decode {

// Half a warp takes a key at a time, each lane eight elements of it.
inline constexpr int kHalves = 2 * kWarps;
inline constexpr int kLaneElements = 8, kMostDim = 16 * kLaneElements;

// Floats of shared memory: the token's query, key and value, then what the warps have: largest
// score, sum, sums of values.
TESSERA_HOST_DEVICE inline int attention_floats(int dim) {
  return 3 * dim / 2 + kWarps * (dim + 2);
}

}  // namespace tessera::cuda::decode
