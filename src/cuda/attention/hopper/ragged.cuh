// Sequences of different lengths: ragged batches, and keys in pages.
//
//   q, out      |  sequence 0  | 1 |     sequence 2      |      one after the other
//   row tiles     | 2 | 1 | 0 |      | 3 | 2 | 1 | 0 |        from the last rows up: a tile that is
//                                                             not full reaches into the sequence
//                                                             before, whose rows are not stored
//   keys        [page 7][page 0][page 4]           by the sequence's row of the page table
//
// Offsets and lengths are in device memory. One warp looks up an item and writes it to shared
// memory, where the fetching thread and the computing warpgroups read it. Offsets and lengths may
// hold anything, so they are clamped. A page that is not in the pool is outside the tensor map,
// which makes its keys NaN.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/work.cuh"

namespace tessera::cuda::hopper {

struct RaggedWork : Work {
  Lengths lengths;
  int q_begin;                // of the sequence, in batch `batch` of q
  int k_batch, k_begin;       // without pages
  const std::int32_t* pages;  // null: none
};

// Broadcast, so that the compiler knows that the warp does not diverge here.
__device__ inline int from_first_lane(int x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ inline Lengths lengths_of(const HopperCall&, const RaggedWork& work) {
  return {from_first_lane(work.lengths.n_q), from_first_lane(work.lengths.n_k)};
}
__device__ inline int first_query(const RaggedWork& work) { return work.q_begin; }

template <int keys>
__device__ Span find_span(const HopperCall& call, const RaggedWork& work, int row) {
  RaggedWork same;  // the part that a span depends on
  same.lengths = work.lengths;
  same.band_end = from_first_lane(work.band_end);
  same.band_tiles = from_first_lane(work.band_tiles);
  same.sink_tiles = from_first_lane(work.sink_tiles);
  return find_span<keys, RaggedWork>(call, same, from_first_lane(row));
}

__device__ inline int clamped(int x, int low, int high) { return min(max(x, low), high); }

struct QueryRange {
  int begin, count;
};
__device__ inline QueryRange queries_of(const HopperCall& call, int sequence) {
  if (call.q_offsets == nullptr) return {0, call.n_q};
  const int begin = clamped(call.q_offsets[sequence], 0, call.n_q);
  return {begin, clamped(call.q_offsets[sequence + 1], begin, call.n_q) - begin};
}

// The number of a sequence's row tiles that this kernel computes.
template <int rows>
__device__ int tiles_of_sequence(const HopperCall& call, int sequence) {
  const int n_q = queries_of(call, sequence).count;
  return n_q * call.group <= call.few_rows ? 0 : (n_q + rows - 1) / rows;
}

// Turn t of a sequence of the batch.
template <int rows, int keys>
__device__ RaggedWork ragged_work(const HopperCall& call, int head, int sequence, int turn) {
  RaggedWork work;
  const QueryRange queries = queries_of(call, sequence);
  work.batch = call.q_offsets != nullptr ? 0 : sequence;
  work.head = head;
  work.q_begin = queries.begin;
  work.k_batch = sequence;
  work.k_begin = 0;
  work.pages = nullptr;
  work.lengths = {queries.count, call.n_k};
  if (call.k_offsets != nullptr) {
    work.k_batch = 0;
    work.k_begin = clamped(call.k_offsets[sequence], 0, call.n_k);
    work.lengths.n_k = clamped(call.k_offsets[sequence + 1], work.k_begin, call.n_k) - work.k_begin;
  }
  if (call.page_table != nullptr) {
    work.pages = call.page_table + sequence * call.table_stride;
    work.lengths.n_k = clamped(call.lengths[sequence], 0, call.n_k);
  }
  find_band<rows, keys>(call, turn, work.lengths, work);
  return work;
}

// Called by a whole warp, which looks at 32 sequences at a time. False: there are no more turns.
template <int rows, int keys>
__device__ bool find_ragged_work(const HopperCall& call, int item, RaggedWork& work) {
  const int lane = threadIdx.x % 32;
  const Place place = find_place(call, item);
  int turn = place.turn;
  for (int first = 0; first < call.sequences; first += 32) {
    const int tiles =
        first + lane < call.sequences ? tiles_of_sequence<rows>(call, first + lane) : 0;
    int end = tiles;  // of this sequence's turns, counted from sequence `first` on
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += before;
    }
    const unsigned behind = __ballot_sync(0xffffffffu, turn < end);
    if (behind != 0) {
      const int found = __ffs(static_cast<int>(behind)) - 1;
      turn -= __shfl_sync(0xffffffffu, end - tiles, found);
      work = ragged_work<rows, keys>(call, place.head, first + found, turn);
      return true;
    }
    turn -= __shfl_sync(0xffffffffu, end, 31);
  }
  return false;
}

}  // namespace tessera::cuda::hopper
