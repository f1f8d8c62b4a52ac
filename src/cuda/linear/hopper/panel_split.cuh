// A tile whose pairs of slabs the blocks of a cluster share (panels.cuh), for calls with so few
// tiles that each can have a cluster. At the end, each block runs the epilogue for a part of the
// tile: every split-th group of eight tokens. So all blocks send the other blocks their sums at the
// same time. Sums are added in the order of blocks, the same every time.
//
// The sums overwrite the stages, which are no longer needed: [sending block][group][thread] of
// four.
#pragma once

#include <algorithm>

#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/plan/panel_plan.h"
#include "cuda/tile/hopper/cluster.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda {

template <int kTokens>
struct PanelSplit {
  static constexpr int kThreads = kPanelWarps * 32;
  static constexpr int kMeetBarrier = 1 + kPanelWarps / 4;  // the earlier ones belong to warpgroups
  // The bytes of everything that is sent to a block.
  static constexpr int most_bytes() {
    int groups = 0;
    for (const int split : kPanelSplits) {
      groups = std::max(groups, split * ((kTokens / 8 + split - 1) / split));
    }
    return (groups + 1) * kThreads * 16;  // and one that is read but not used
  }

  int split, rank;  // blocks of the cluster, and which of them this is
  int room;         // groups of a block, at most
  int groups;       // of tokens that exist
  float4* received;
  std::uint64_t* barriers;  // one for each warp

  // The number of this block's groups.
  __device__ int count() const { return (groups - rank + split - 1) / split; }
  __device__ float4* place(int from, int group) const {
    return received + (from * room + group) * kThreads + threadIdx.x;
  }

  // All warps with sums call meet(), send() and receive(), once each. meet() waits until all are
  // done with their stages.
  __device__ void meet(int warps) const {
    if (split > 1) {
      tile::cluster_meet();
    } else {
      tile::barrier_sync(kMeetBarrier, warps * 32);
    }
  }

  __device__ void send(const float (&sums)[kTokens / 2]) const {
    const std::uint64_t& barrier = barriers[threadIdx.x / 32];
    int owner = 0, group = 0;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      if (j < groups) {
        const float4 four{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
        float4* here = place(rank, group);
        if (owner == rank) {
          *here = four;
        } else {
          tile::send(tile::shared_of(owner, here), tile::shared_of(owner, &barrier), four);
        }
      }
      if (++owner == split) owner = 0, ++group;
    }
  }

  __device__ void receive() const {
    if (split == 1 || count() <= 0) return;
    std::uint64_t& barrier = barriers[threadIdx.x / 32];
    if (threadIdx.x % 32 == 0) {
      tile::arrive_expecting(barrier, static_cast<std::uint32_t>((split - 1) * count() * 32 * 16));
    }
    tile::wait(barrier, 0);
  }

  // Then add_up() of the block's groups, two at a time: its group `group` is the tile's group `rank
  // + group * split`.
  __device__ void add_up(int group, TwoGroups& sums) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float4 sum = *place(0, group + j);
      for (int from = 1; from < split; ++from) {
        const float4 part = *place(from, group + j);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
      sums[4 * j] = sum.x, sums[4 * j + 1] = sum.y;
      sums[4 * j + 2] = sum.z, sums[4 * j + 3] = sum.w;
    }
  }
};

}  // namespace tessera::cuda
