// Sizes of attention in the persistent kernel (attention.cuh).
#pragma once

#include "core/host_device.h"
#include "cuda/decode/call.h"

namespace tessera::cuda::decode {

// Half a warp takes a key at a time, each lane eight elements of it.
inline constexpr int kHalves = 2 * kWarps;
inline constexpr int kLaneElements = 8, kMostDim = 16 * kLaneElements;

// Floats of shared memory: the token's key, value and queries, then the warps' results for each
// query: largest score, sum, sums of values.
TESSERA_HOST_DEVICE inline int attention_floats(int dim, int queries) {
  return (2 + queries) * dim / 2 + queries * kWarps * (dim + 2);
}

}  // namespace tessera::cuda::decode
