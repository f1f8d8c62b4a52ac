// A block of the Hopper kernel for the gradients of attention: its shared memory, and the barriers
// with which fetching and computing warps hand places in it to each other. "full": the copy engine
// has filled a place. "free": all readers of the place are done.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/attention/backward/hopper/call.h"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda::backward {

// T is __half or __nv_bfloat16.
template <typename T_, int dim>
struct HopperBlock {
  using T = T_;
  static constexpr int kDim = dim, kPanels = (dim + 63) / 64;
  static constexpr int kQueries = hopper_queries(dim), kKeys = kHopperKeys, kStages = 3;
  static constexpr int kWarpgroups = 2, kThreads = tile::kWarpgroup * (1 + kWarpgroups);
  // A block of three warpgroups starts with 168 registers for each thread.
  static constexpr int kFetchRegisters = 24, kComputeRegisters = 240;
  static constexpr int kQueryPanel = kQueries * 128, kKeyPanel = kKeys * 128;  // bytes
  static constexpr int kQueryBytes = kPanels * kQueryPanel, kKeyBytes = kPanels * kKeyPanel;
  static constexpr int kScoreBytes = 2 * kQueryPanel;  // dS: a panel for each warpgroup's 64 keys

  struct Barriers {
    std::uint64_t k_full, v_full;
    std::uint64_t q_full[kStages], d_out_full[kStages], free[kStages];
  };
  struct Memory {
    unsigned char k[kKeyBytes], v[kKeyBytes];
    unsigned char q[kStages][kQueryBytes], d_out[kStages][kQueryBytes];
    unsigned char d_scores[2][kScoreBytes];
    float exponent[kStages][kQueries], delta[kStages][kQueries];
    Barriers barriers;
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Memory));

  __device__ static void init(Barriers& barriers) {
    if (threadIdx.x == 0) {
      tile::init_barrier(barriers.k_full, 1);
      tile::init_barrier(barriers.v_full, 1);
      for (int i = 0; i < kStages; ++i) {
        tile::init_barrier(barriers.q_full[i], 1);
        tile::init_barrier(barriers.d_out_full[i], 1);
        tile::init_barrier(barriers.free[i], tile::kWarpgroup * kWarpgroups);
      }
      tile::publish_barriers();
    }
    __syncthreads();
  }
};

}  // namespace tessera::cuda::backward
