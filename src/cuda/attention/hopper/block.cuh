// A block of the Hopper attention kernel: its shared memory, and the barriers with which fetching
// and computing warpgroups hand places in it to each other. "full": the copy engine has filled a
// place. "free": all readers of the place are done.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/pattern.cuh"
#include "cuda/attention/hopper/ragged.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda::hopper {

// T is __half or __nv_bfloat16.
template <typename T_, int dim, HopperTiles tiles>
struct Kernel {
  using T = T_;
  static constexpr HopperTiles kTiles = tiles;
  static constexpr int kDim = dim, kKeys = kTiles.keys, kStages = kTiles.stages;
  static constexpr int kWarpgroups = kTiles.warpgroups, kRows = 64 * kWarpgroups;
  static constexpr int kPanels = hopper_panels(dim);
  static constexpr bool kPattern = kTiles.pattern, kRagged = kTiles.ragged;
  // One thread or warp looks up an item and publishes it. Under a band over equally long sequences,
  // every thread computes the item by itself.
  static constexpr bool kDealt = kPattern || kRagged;
  using Item =
      std::conditional_t<kPattern, PatternWork, std::conditional_t<kRagged, RaggedWork, Work>>;
  // Whether the softmax runs beside the warpgroup's own products. With two blocks on a
  // multiprocessor, a block's half of the registers cannot hold the weights of a tile beside the
  // scores of the next. The softmax then runs beside the other block's products.
  static constexpr bool kOverlaps = kTiles.blocks == 1;
  static constexpr int kThreads = tile::kWarpgroup * (1 + kWarpgroups);
  static constexpr int kQueryPanel = 64 * 128, kKeyPanel = kKeys * 128;  // bytes
  static constexpr int kQueryBytes = kPanels * kQueryPanel, kKeyBytes = kPanels * kKeyPanel;
  // A block starts with as many registers for each thread as its share of 64 K allows, in multiples
  // of 8: 168 with three warpgroups, 128 with four, 80 with six in two blocks. The sum over
  // warpgroups must not exceed that.
  static constexpr int kFetchRegisters = kThreads * kTiles.blocks == 384 ? 40 : 32;
  static constexpr int kComputeRegisters = kTiles.blocks == 2 ? 104 : kWarpgroups == 2 ? 232 : 160;
  static_assert(kFetchRegisters + kWarpgroups * kComputeRegisters <=
                (1 + kWarpgroups) * (65536 / kThreads / kTiles.blocks / 8 * 8));
  static_assert(kWarpgroups == 2 || kWarpgroups == 3);

  struct Barriers {
    std::uint64_t q_full[kWarpgroups], q_free[kWarpgroups];
    std::uint64_t k_full[kStages], k_free[kStages], v_full[kStages], v_free[kStages];
    std::uint64_t item_full[2], item_free[2];
    int items[2];                // the current item and the next
    Item dealt[2];               // their contents, if they are dealt
    int tile_of_stage[kStages];  // of a pattern: the key tile in each stage
  };
  unsigned char *q, *k, *v;  // [warpgroups] and [stages] of [panels, rows, 128 bytes]
  Barriers* barriers;

  // `shared` is aligned to 1024 bytes, eight swizzled rows.
  __device__ explicit Kernel(unsigned char* shared) {
    q = shared;
    k = q + kWarpgroups * kQueryBytes;
    v = k + kStages * kKeyBytes;
    barriers = reinterpret_cast<Barriers*>(v + kStages * kKeyBytes);
  }

  __device__ void init() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kWarpgroups; ++i) {
        tile::init_barrier(barriers->q_full[i], 1);
        tile::init_barrier(barriers->q_free[i], 4);  // one arrival for each warp
      }
      for (int i = 0; i < kStages; ++i) {
        tile::init_barrier(barriers->k_full[i], 1);
        tile::init_barrier(barriers->v_full[i], 1);
        tile::init_barrier(barriers->k_free[i], 4 * kWarpgroups);
        tile::init_barrier(barriers->v_free[i], 4 * kWarpgroups);
      }
      for (int i = 0; i < 2; ++i) {
        tile::init_barrier(barriers->item_full[i], 1);
        tile::init_barrier(barriers->item_free[i], 4 * kWarpgroups + (kDealt ? 1 : 0));
      }
      tile::publish_barriers();
    }
    __syncthreads();
  }
};

// Frees a place in shared memory once a warp's products have read it.
__device__ inline void release(std::uint64_t& free) {
  if (threadIdx.x % 32 == 0) tile::arrive(free);
}

}  // namespace tessera::cuda::hopper
