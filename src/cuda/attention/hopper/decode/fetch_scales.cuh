// The scales of 8-bit keys and values in the decode kernel for Hopper: a second fetching warp loads
// them by cp.async, 4 bytes for each lane. The copy engine would take as long to start for 256
// bytes as for 8 KB, and cannot load scales from unaligned addresses.
#pragma once

#include <cstdint>
#include <cuda/ptx>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/fetch.cuh"
#include "cuda/attention/hopper/decode/share.cuh"
#include "cuda/tile/cp_async_word.cuh"

namespace tessera::cuda::hopper_decode {

// How often the warp arrives at "full": each lane once its copies have arrived, and one lane for
// the scales that lanes wrote themselves.
inline constexpr int kScaleArrivals = 32 + 1;

template <typename Block>
struct ScaleFetcher {
  const DecodeCall& c;
  const Block& block;
  int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace place;

  __device__ void run() {
    for (Pieces piece(c, block.before, Block::kHeads); !piece.done(); piece.next()) {
      const SmallSequence s = SmallSequence::of(c.call, piece.sequence);
      with_unit<Block>(c.unit, [&](auto unit) { fetch<unit()>(piece, s); });
    }
    close_copy_group();
    wait_for_copies<0>();
  }

 private:
  // Where the scales of one copy's keys begin, relative to a head's first scale.
  struct Offsets {
    int k, v;  // k is -1 if the page is not in the pool
  };
  __device__ Offsets offsets(const KeyPlace& at) const {
    const bool lost =
        c.call.page_table != nullptr &&
        static_cast<std::uint32_t>(at.batch) >= static_cast<std::uint32_t>(c.call.pool_pages);
    if (lost) return {-1, -1};
    return {at.batch * static_cast<int>(c.call.k_scales.batch_stride) + at.row,
            at.batch * static_cast<int>(c.call.v_scales.batch_stride) + at.row};
  }
  template <int unit>
  __device__ void fetch(const Pieces& piece, const SmallSequence& s) {
    constexpr int kUnits = Block::kStepKeys / unit;
    const std::int64_t first_head = std::int64_t{piece.heads} * Block::kHeads;
    const float* const k_scales = c.call.k_scales.data + first_head * c.call.k_scales.head_stride;
    const float* const v_scales = c.call.v_scales.data + first_head * c.call.v_scales.head_stride;
    const Slots slots(s);
    const int exist = slots.behind(s.n_k);
    Offsets mine{}, from{};
    for_each_step<Block, unit>(c.call, piece, s, [&](const KeyPlace& places, int i, int k0) {
      if (i == 0) mine = offsets(places);
      tile::wait(block.barriers->free[place.stage], place.parity ^ 1);
      float* const to = block.scales(place.stage) + lane;
#pragma unroll
      for (int part = 0; part < Block::kParts; ++part) {
        const int key = part * kWarpKeys + lane;  // in the step
        if (part == 0 || unit <= kWarpKeys) {     // else it is the same copy
          const int with = i * kUnits + key / unit;
          from = {__shfl_sync(0xffffffffu, mine.k, with), __shfl_sync(0xffffffffu, mine.v, with)};
        }
        const bool exists = k0 + key < exist && !slots.in_hole(k0 + key);
        if (exists && from.k >= 0) {
          copy(to + part * kWarpKeys, k_scales + from.k + key % unit, c.call.k_scales);
          copy(to + part * kWarpKeys + kValues, v_scales + from.v + key % unit, c.call.v_scales);
        } else {
          // The scores of a key in a page that is not in the pool are NaN, for all queries that see
          // it. Beyond the last key, and in a hole, everything is 0.
          write(to + part * kWarpKeys, exists ? __uint_as_float(0x7fffffffu) : 0.f);
          write(to + part * kWarpKeys + kValues, 0.f);
        }
      }
      std::uint64_t& full = block.barriers->full[place.stage];
      ::cuda::ptx::cp_async_mbarrier_arrive_noinc(&full);
      __syncwarp();
      if (lane == 0) tile::arrive(full);
      place.advance(c.stages);
    });
  }
  static constexpr int kValues = Block::kHeads * Block::kStepKeys;  // where their scales begin

  // Copies the scales of one key and all heads of the block.
  __device__ static void copy(float* to, const float* from, const KeyScales& scales) {
#pragma unroll
    for (int h = 0; h < Block::kHeads; ++h) {
      copy_async_word(to + h * Block::kStepKeys, from + h * scales.head_stride);
    }
  }
  __device__ static void write(float* to, float scale) {
#pragma unroll
    for (int h = 0; h < Block::kHeads; ++h) to[h * Block::kStepKeys] = scale;
  }
};

}  // namespace tessera::cuda::hopper_decode
