// The fetching side of the decode kernel for Hopper: one warp keeps the copy engine busy, across
// the ends of pieces and sequences, as far ahead as there are stages.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/share.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/tma_rows.cuh"

namespace tessera::cuda::hopper_decode {

// Where the keys of one copy lie, in the copy engine's count of rows.
struct KeyPlace {
  int row, batch;  // batch: or page
};

// The place of the copy that begins with this slot. Rows outside the tensor, such as those of a
// page that is not in the pool, become NaN.
__device__ inline KeyPlace find_place(const AttentionCall& call, const SmallSequence& s, int slot) {
  if (call.page_table == nullptr) return {s.k_begin + slot, s.k_batch};
  if (slot >= Slots(s).behind(s.n_k)) return {0, -1};
  const int page_size = static_cast<int>(call.page_size), index = slot / page_size;
  return {slot - index * page_size, call.page_table[s.index * call.table_stride + index]};
}

// Calls fn with the keys of one copy, `unit`, as a constant.
template <typename Block, typename F>
__device__ void with_unit(int unit, F fn) {
  if (unit == Block::kStepKeys) return fn(std::integral_constant<int, Block::kStepKeys>());
  if constexpr (Block::kStepKeys / 2 != kLeastUnit) {
    if (unit != kLeastUnit) return fn(std::integral_constant<int, Block::kStepKeys / 2>());
  }
  fn(std::integral_constant<int, kLeastUnit>());
}

// Calls fn(places, i, slot) for each step of a piece, which begins with this slot. Each lane looks
// up one of the next 32 copies, while earlier copies are in flight: lane i * units + u has the
// place of copy u of step i.
template <typename Block, int unit, typename F>
__device__ void for_each_step(const AttentionCall& call, const Pieces& piece,
                              const SmallSequence& s, F fn) {
  constexpr int kUnits = Block::kStepKeys / unit, kAtOnce = 32 / kUnits;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto steps = steps_over<Block::kStepKeys>(s, loop_over(call, s));
  const auto look_up = [&](int first) {
    return find_place(call, s, steps.key(first + lane / kUnits) + lane % kUnits * unit);
  };
  KeyPlace next = look_up(piece.begin);
  for (int first = piece.begin; first < piece.end; first += kAtOnce) {
    const KeyPlace places = next;
    if (first + kAtOnce < piece.end) next = look_up(first + kAtOnce);
    for (int i = 0; i < kAtOnce && first + i < piece.end; ++i) fn(places, i, steps.key(first + i));
  }
}

// The position of a fetching warp in the ring.
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <typename T, typename Block>
struct Fetcher {
  using Rows = typename Block::Rows;
  const DecodeCall& c;
  const Block& block;
  int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace place;
  int pieces = 0;  // so far
  // The stage whose copies must arrive before the next ones begin, and how many begin before that.
  RingPlace landing;
  int ahead = c.in_flight;

  __device__ void run() {
    for (Pieces piece(c, block.before, Block::kHeads); !piece.done(); piece.next()) {
      const SmallSequence s = SmallSequence::of(c.call, piece.sequence);
      fetch_queries(s, piece.heads * Block::kHeads);
      with_unit<Block>(c.unit, [&](auto unit) { fetch_keys<unit()>(piece, s); });
      ++pieces;
    }
  }

 private:
  // Each lane copies one row of each head.
  __device__ void fetch_queries(const SmallSequence& s, int first_head) {
    constexpr int kBytes = Block::dim * 2;
    const int buffer = pieces % 2, count = rows_of(c.call, s);
    tile::wait(block.barriers->q_free[buffer], static_cast<std::uint32_t>(pieces / 2 % 2 ^ 1));
    std::uint64_t& full = block.barriers->q_full[buffer];
    if (lane == 0) {
      tile::arrive_expecting(full, static_cast<std::uint32_t>(Block::kHeads * kBytes * count));
    }
    __syncwarp();
    if (lane >= count) return;
    unsigned char* to =
        block.queries + buffer * Block::kQueries + lane * PaddedRows<Block::dim>::kRowBytes;
    for (int h = 0; h < Block::kHeads; ++h) {
      const QueryRows rows{c.call, s, first_head + h, 0, count};
      tile::copy_bulk(to + h * Block::kHeadQueries,
                      c.call.query_row<const T>(c.call.q, s, rows.query(lane), rows.head(lane)),
                      kBytes, full);
    }
  }
  template <int unit>
  __device__ void fetch_keys(const Pieces& piece, const SmallSequence& s) {
    constexpr int kUnits = Block::kStepKeys / unit;
    for_each_step<Block, unit>(c.call, piece, s, [&](const KeyPlace& mine, int i, int) {
      wait_for_landing();
      tile::wait(block.barriers->free[place.stage], place.parity ^ 1);
      if (lane / kUnits == i) fetch_unit<unit>(mine, piece.heads, lane % kUnits);
      __syncwarp();
      place.advance(c.stages);
    });
  }
  // More bytes in flight than keep memory busy make it slower (docs/notebook). The ring may be
  // longer than that, to cover the time that computing warps spend at the end of a piece.
  __device__ void wait_for_landing() {
    if (ahead > 0) {
      --ahead;
      return;
    }
    tile::wait(block.barriers->full[landing.stage], landing.parity);
    landing.advance(c.stages);
  }
  template <int unit>
  __device__ void fetch_unit(const KeyPlace& at, int heads, int number) const {
    std::uint64_t& full = block.barriers->full[place.stage];
    unsigned char* to = block.stage(place.stage) + number * (unit * Rows::kRowBytes);
    constexpr auto kBytes = static_cast<std::uint32_t>(Block::kStage / Block::kStepKeys * unit);
    tile::arrive_expecting(full, kBytes);
    if constexpr (Block::kCodes) {  // all heads share a row
      load(to, at, 0, heads);
    } else {
      // A copy of fewer rows than a panel has loads only one panel of one head.
      constexpr bool kAll = unit == Block::kStepKeys;
#pragma unroll 1
      for (int h = 0; h < (kAll ? 1 : Block::kHeads); ++h) {
#pragma unroll
        for (int panel = 0; panel < (kAll ? 1 : Rows::kPanels); ++panel) {
          load(to + h * Rows::kBytes + panel * Rows::kPanelBytes, at, panel,
               heads * Block::kHeads + h);
        }
      }
    }
  }
  __device__ void load(unsigned char* keys, const KeyPlace& at, int panel, int head) const {
    std::uint64_t& full = block.barriers->full[place.stage];
    const std::int32_t from[5] = {0, at.row, panel, head, at.batch};
    tile::load_rows(keys, &c.k, from, full);
    tile::load_rows(keys + Block::kHalf, &c.v, from, full);
  }
};

}  // namespace tessera::cuda::hopper_decode
