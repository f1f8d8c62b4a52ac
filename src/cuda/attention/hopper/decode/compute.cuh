// The computing side of the decode kernel for Hopper: each warp has a key head and takes 32 keys of
// every few steps of the block, in the layout of mma.sync. At the end of a piece the warps merge
// their results, while the keys of the next piece are in flight.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/products.cuh"
#include "cuda/attention/hopper/decode/share.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_merge.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda::hopper_decode {

// Of is Products or CodeProducts.
template <typename Of>
struct Computer {
  static constexpr int dim = Of::dim;
  using T = typename Of::Element;
  using BlockOf = typename Of::BlockOf;

  const DecodeCall& c;
  const BlockOf& block;
  int head = split::warp_of_block() % BlockOf::kHeads;                         // of the block's
  int step_part = split::warp_of_block() / BlockOf::kHeads % BlockOf::kParts;  // of each step
  int place = split::warp_of_block() / BlockOf::kTeamWarps;  // of the warp's next step in the ring
  std::uint32_t parity = 0;
  // The same step, counted over all pieces of the block.
  int next_step = split::warp_of_block() / BlockOf::kTeamWarps;

  __device__ void run() {
    int pieces = 0, first_step = 0;
    for (Pieces piece(c, block.before, BlockOf::kHeads); !piece.done(); piece.next()) {
      const SmallSequence s = SmallSequence::of(c.call, piece.sequence);
      const QueryRows rows{c.call, s, piece.heads * BlockOf::kHeads + head, 0, rows_of(c.call, s)};
      typename Of::State state;
      state.clear();
      compute(piece, rows, pieces, first_step, state);
      finish(piece, rows, state);
      first_step += piece.end - piece.begin;
      ++pieces;
    }
  }

 private:
  __device__ void compute(const Pieces& piece, const QueryRows& rows, int pieces, int first_step,
                          typename Of::State& state) {
    const KeyTileLoop loop = loop_over(c.call, rows.sequence);
    const Slots slots(rows.sequence);
    const auto steps = steps_over<BlockOf::kStepKeys>(rows.sequence, loop);
    // The first row after the sequence; then the end of the rows that some query sees.
    const int exist = steps.count == 0 ? 0 : slots.behind(rows.sequence.n_k);
    const int end = slots.behind(loop.end);
    Of products(head);
    const int buffer = pieces % 2;
    tile::wait(block.barriers->q_full[buffer], static_cast<std::uint32_t>(pieces / 2 % 2));
    products.load(block.queries + buffer * BlockOf::kQueries + head * BlockOf::kHeadQueries);
    release(block.barriers->q_free[buffer]);
    for (; next_step < first_step + piece.end - piece.begin; next_step += BlockOf::kTeams) {
      const int k0 = steps.key(piece.begin + next_step - first_step) + step_part * kWarpKeys;
      tile::wait(block.barriers->full[place], parity);
      // A part of the last step may begin after the last key.
      if (BlockOf::kParts == 1 || k0 < end) {
        if (k0 + kWarpKeys > exist || slots.meet_hole(k0, kWarpKeys)) {
          const int row = k0 + lane_of_warp();
          clear_values(products, row >= exist || slots.in_hole(row));
        }
        take_step(products, rows, loop, slots, k0, state);
      }
      release(block.barriers->free[place]);
      place += BlockOf::kTeams;
      if (place >= c.stages) {
        place -= c.stages;
        parity ^= 1;
      }
    }
  }
  __device__ unsigned char* keys() const {
    return block.stage(place) + Of::first_row(head, step_part);
  }
  __device__ unsigned char* values() const { return keys() + BlockOf::kHalf; }
  // The scales of the warp's keys, or of their values.
  __device__ const float* scales(int of_values) const {
    return block.scales(place) + (of_values * BlockOf::kHeads + head) * BlockOf::kStepKeys +
           step_part * kWarpKeys;
  }
  __device__ void take_step(const Of& products, const QueryRows& rows, const KeyTileLoop& loop,
                            const Slots& slots, int k0, typename Of::State& state) const {
    const auto hide = [&](auto& scores) {
      if (slots.meet_hole(k0, kWarpKeys) || !loop.full(slots.key(k0), kWarpKeys)) {
        Of::hide_keys(rows, LoopAroundHole{loop, slots}, k0, scores);
      }
    };
    StepPlace at{
        .keys = keys(), .values = values(), .key_scales = nullptr, .value_scales = nullptr};
    if constexpr (BlockOf::kCodes) at.key_scales = scales(0), at.value_scales = scales(1);
    products.take(c.call.q_factor, at, hide, state);
  }
  // Signals that the warp has read a place.
  __device__ static void release(std::uint64_t& barrier) {
    __syncwarp();
    if (lane_of_warp() == 0) tile::arrive(barrier);
  }
  // Rows after the last key, or in a hole, belong to other sequences or are NaN. A weight of 0
  // would not hide a NaN.
  __device__ void clear_values(const Of& products, bool mine) const {
    if (mine) products.clear(values(), lane_of_warp());
    tile::publish_shared();  // the copy engine writes here next
    __syncwarp();
  }

  __device__ static void meet() { tile::barrier_sync(1, BlockOf::kComputing); }

  // Merges the warps' results and, if the block is the last of its slot to get here, all parts.
  __device__ void finish(const Pieces& piece, const QueryRows& rows,
                         const typename Of::State& state) {
    meet();  // the results of the piece before have been read
    Of::share(state, rows.size, block);
    meet();
    const bool alone = piece.is_whole();
    const int most = c.partials.rows / BlockOf::kHeads;  // rows of a head
    // Row r of head h is row h * most + r of a part.
    const auto for_each_row = [&](auto fn) {
      for (int i = split::warp_of_block(); i < BlockOf::kHeads * rows.size; i += BlockOf::kWarps) {
        const int h = i / rows.size, row = h * most + i - h * rows.size;
        fn(h, row,
           QueryRows{c.call, rows.sequence, piece.heads * BlockOf::kHeads + h, -h * most,
                     rows.size});
      }
    };
    for_each_row([&](int h, int row, const QueryRows& of_head) {
      merge_warps(of_head, h, row, row - h * most, piece.part(), alone);
    });
    if (alone || !comes_last(c.partials.counters + piece.slot(), piece.parts())) return;
    for_each_row([&](int, int row, const QueryRows& of_head) {
      split::merge_row<T, dim>(of_head, row, static_cast<std::uint32_t>(piece.first_part()),
                               c.partials, piece.parts());
    });
  }
  // Merges the results of a head's warps into the output, or into a row of a part.
  __device__ void merge_warps(const QueryRows& rows, int h, int row_of_part, int row, int part,
                              bool alone) const {
    constexpr int kShares = BlockOf::kWarps / BlockOf::kHeads;
    const int lane = lane_of_warp();
    split::Merged merged;
    float weights[kShares];
#pragma unroll
    for (int t = 0; t < kShares; ++t) {
      merged.largest = fmaxf(merged.largest, block.largest[t * BlockOf::kHeads + h][row]);
    }
#pragma unroll
    for (int t = 0; t < kShares; ++t) {
      const int warp = t * BlockOf::kHeads + h;
      weights[t] = merged.weight(block.largest[warp][row]);
      merged.sum += weights[t] * block.sum[warp][row];
    }
    const float factor = !alone ? 1.f : merged.sum == 0.f ? 0.f : 1.f / merged.sum;
    const std::int64_t at = std::int64_t{part} * c.partials.rows + row_of_part;
    const int query = rows.query(row_of_part);
    const std::int64_t q_head = rows.head(row_of_part);
    T* out = c.call.query_row<T>(c.call.out, rows.sequence, query, q_head);
    for (int d = lane; d < dim; d += 32) {
      float sum = 0.f;
#pragma unroll
      for (int t = 0; t < kShares; ++t) {
        sum += weights[t] * block.out(t * BlockOf::kHeads + h, row)[d];
      }
      if (alone) {
        out[d] = from_f32<T>(factor * sum);
      } else {
        c.partials.sums[at * dim + d] = sum;
      }
    }
    if (lane != 0) return;
    if (!alone) {
      c.partials.largest_and_sum[2 * at] = merged.largest;
      c.partials.largest_and_sum[2 * at + 1] = merged.sum;
    } else if (c.call.lse != nullptr) {
      *c.call.lse_at(rows.sequence, query, q_head) = split::log_sum_exp(merged);
    }
  }
  // Like cuda::comes_last(), without the fetching warp.
  __device__ bool comes_last(std::int32_t* counter, int blocks) const {
    meet();
    if (threadIdx.x == 0) {
      __threadfence();
      *block.last = atomicAdd(counter, 1) == blocks - 1;
      if (*block.last) *counter = 0;
    }
    meet();
    if (*block.last) __threadfence();
    return *block.last;
  }
};

}  // namespace tessera::cuda::hopper_decode
