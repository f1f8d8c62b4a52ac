// Attention, forward, for Hopper (sm_90a): cuda.hopper.
//
// The idea: one warpgroup fetches while the others compute, so that copies run beside products.
// Products are ordered so that the softmax runs beside them too.
//
//   warpgroup 0       fetches: the copy engine loads tiles of q, k and v as soon as their place in
//                     shared memory is free
//   warpgroups 1 ..   compute, 64 query rows each:
//
//                 S = q k^T   (tensor cores, S in registers)
//                 P = 2^(scale S - largest), sums and largest of each row
//                 O = rescaled O + P v   (tensor cores, P from registers)
//
//   stages of k, v   | 0 1 2 | 0 1 2 | ...      a ring in shared memory, filled by warpgroup 0
//   warpgroup 1        S1 | S2 O1 | S3 O2 | ...
//       its softmax      P1 |   P2  |   P3   |  beside the products
//   warpgroup 2            S1 | S2 O1 | S3 O2   by turns with warpgroup 1
//
// Two overlaps keep the tensor cores busy. Within a warpgroup, the next tile's S starts before this
// tile's O, and the softmax of the next tile runs beside O. Between warpgroups: they take turns in
// starting products, so that one's softmax runs beside the other's products.
//
// There are as many blocks as multiprocessors, or twice as many where two fit on one. They are
// persistent: each takes one item of work after the other. While the last tile of an item is
// finished and stored, the first tiles of the next are in flight and, where it pays
// (HopperTiles::ahead), so are its first scores.
//
// examples/learn teaches this in two steps: step 7 (a warp that fetches) and step 8 (wgmma).
#pragma once

#include "cuda/attention/hopper/block.cuh"
#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/compute.cuh"
#include "cuda/attention/hopper/fetch.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda::hopper {

template <typename K>
__global__ void __launch_bounds__(K::kThreads, K::kTiles.blocks)
    attend(const __grid_constant__ HopperCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  K block(shared);
  block.init();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / tile::kWarpgroup, 0);
  if (warpgroup == 0) {
    tile::give_up_registers<K::kFetchRegisters>();
    if constexpr (!K::kDealt) {
      if (threadIdx.x == 0) fetch<K>(call, block);
    } else {
      if (threadIdx.x == 0) fetch_dealt<K>(call, block);
      if constexpr (K::kRagged) {
        if (threadIdx.x / 32 == 1) deal_ragged<K>(call, block);
      } else {
        if (threadIdx.x == 32) deal_pattern<K>(call, block);
      }
    }
  } else {
    tile::take_registers<K::kComputeRegisters>();
    Warpgroup<K>(call, block, warpgroup - 1).run();
  }
#else
  __trap();  // the host launches this only on Hopper
#endif
}

}  // namespace tessera::cuda::hopper
