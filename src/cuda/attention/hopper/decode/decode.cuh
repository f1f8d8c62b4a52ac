// Attention, forward, where a sequence has few query rows, on Hopper: cuda.hopper.decode.
//
// The idea of cuda.split (portable/split.cuh), changed so that memory is never idle. There are as
// many blocks as run at a time, and each has an equal share of all keys of the batch, whatever
// sequences and heads they belong to:
//
//   fetching warp      | K V | K V | K V | K V | ...     the copy engine, a ring of stages ahead,
//                                                        across the ends of sequences
//   computing warps    | 0   | 1   | 2   | 3   | 0 ...   a step of 32 keys each, by mma.sync
//
// With 8-bit keys and values (cuda.split.codes), a step has 64 keys and two warps, so that copies
// are as large as with 16 bits. A second fetching warp loads their scales.
//
// A block that reaches the end of a sequence merges the results of its warps while the keys of the
// next sequence arrive. If several blocks share a sequence, the last of them to finish merges their
// parts.
//
// examples/learn teaches this in step 5 (tensor cores) and step 7 (a warp that fetches).
#pragma once

#include <algorithm>
#include <climits>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/code_products.cuh"
#include "cuda/attention/hopper/decode/compute.cuh"
#include "cuda/attention/hopper/decode/fetch.cuh"
#include "cuda/attention/hopper/decode/fetch_scales.cuh"
#include "cuda/attention/hopper/decode/launch.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::hopper_decode {

template <typename Block>
__device__ void make_barriers(const Block& block, int stages, int units) {
  const int arrivals = units + (Block::kCodes ? kScaleArrivals : 0);
  for (int i = 0; i < stages; ++i) {
    tile::init_barrier(block.barriers->full[i], static_cast<std::uint32_t>(arrivals));
    tile::init_barrier(block.barriers->free[i], Block::kTeamWarps);
  }
  for (int i = 0; i < 2; ++i) {
    tile::init_barrier(block.barriers->q_full[i], 1);
    tile::init_barrier(block.barriers->q_free[i], Block::kWarps);
  }
  tile::publish_barriers();
}

// Of is Products or CodeProducts.
template <typename Of>
__global__ void __launch_bounds__(Of::BlockOf::kThreads, 1)
    attend(const __grid_constant__ DecodeCall c) {
  using BlockOf = typename Of::BlockOf;
  const BlockOf block(dynamic_shared<unsigned char>(), c.stages, c.partials.rows / BlockOf::kHeads);
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    make_barriers(block, c.stages, BlockOf::kStepKeys / c.unit);
  } else if (threadIdx.x == BlockOf::kComputing) {
    tile::prefetch_map(&c.k);
    tile::prefetch_map(&c.v);
  }
  // Query rows that do not exist are multiplied too, but their results are not used.
  for (int i = static_cast<int>(threadIdx.x); i < 2 * BlockOf::kQueries / 16;
       i += BlockOf::kThreads) {
    reinterpret_cast<uint4*>(block.queries)[i] = make_uint4(0, 0, 0, 0);
  }
  tile::publish_shared();
  wait_for_earlier_kernels();
  count_steps<BlockOf::kStepKeys>(c.call, block.before);  // has block barriers
  if constexpr (BlockOf::kCodes) {
    if (threadIdx.x >= BlockOf::kComputing + 32) return ScaleFetcher<BlockOf>{c, block}.run();
  }
  if (threadIdx.x >= BlockOf::kComputing) {
    Fetcher<typename Of::Element, BlockOf>{c, block}.run();
  } else {
    Computer<Of>{c, block}.run();
  }
}

// Whether the ring has more stages than may be in flight. The fetching warp then waits twice for
// each step. Small stages leave it no time for that, so their ring has only as many stages as may
// be in flight (64 x 4096, D 64: 130 us instead of 136).
template <typename Block>
constexpr bool waits_for_landing() {
  return Block::kStage >= 16 << 10;
}

// The number of stages is a multiple of the number of teams, so a stage always has the same team.
// Otherwise a team that is ahead could reach a stage whose last step has not been computed, and
// mistake the end of an earlier phase for its own.
template <typename Of>
void start(const Launch& launch, std::int64_t room, DecodeCall call) {
  using BlockOf = typename Of::BlockOf;
  const int most_rows = call.partials.rows / BlockOf::kHeads;
  const int in_flight = std::max(call.in_flight / BlockOf::kStage, 1);
  const int most =
      waits_for_landing<BlockOf>() ? kMostStages : std::max(in_flight, BlockOf::kTeams);
  int stages = BlockOf::kTeams;
  while (stages + BlockOf::kTeams <= most &&
         BlockOf::bytes(stages + BlockOf::kTeams, most_rows) <= room) {
    stages += BlockOf::kTeams;
  }
  call.stages = stages;
  call.in_flight = waits_for_landing<BlockOf>() ? std::min(in_flight, stages) : INT_MAX;
  launch(attend<Of>,
         {.blocks = call.shares.blocks(),
          .threads = BlockOf::kThreads,
          .shared_bytes = BlockOf::bytes(stages, most_rows),
          .overlaps = true},
         call);
}

template <typename T, int dim>
void launch_kernel(const Launch& launch, std::int64_t room, const DecodeCall& call) {
  start<Products<T, dim, decode_heads(2 * dim)>>(launch, room, call);
}

// Most calls have at most 8 rows for a key head, which is one tile of them.
template <typename T, int dim, DType stored>
void start_codes(const Launch& launch, std::int64_t room, const DecodeCall& call) {
  if (call.partials.rows / decode_heads(dim) <= kTileRows) {
    start<CodeProducts<T, dim, stored, 1>>(launch, room, call);
  } else {
    start<CodeProducts<T, dim, stored, 2>>(launch, room, call);
  }
}

template <typename T, int dim>
void launch_codes(const Launch& launch, std::int64_t room, const DecodeCall& call) {
  if (call.call.stored == DType::i8) {
    start_codes<T, dim, DType::i8>(launch, room, call);
  } else {
    start_codes<T, dim, DType::f8e4m3>(launch, room, call);
  }
}

}  // namespace tessera::cuda::hopper_decode
