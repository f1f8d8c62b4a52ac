// Which key tiles a row tile sees under a block pattern. One thread looks that up in the pattern's
// lists and writes it to shared memory. The fetching thread reads it there. So do the computing
// warpgroups, which need the number of tiles and which of them hide keys.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/work.cuh"

namespace tessera::cuda::hopper {

// The key tiles of a row of blocks.
struct PatternRow {
  const std::int32_t* blocks;
  int count, block_keys;

  // How many of the tiles lie before tile `end`.
  __device__ int tiles_before(int end) const {
    const int whole = blocks_before(end);
    return whole == 0
               ? 0
               : (whole - 1) * block_keys + min(block_keys, end - blocks[whole - 1] * block_keys);
  }
  // The i-th tile.
  __device__ int tile(int i) const { return blocks[i / block_keys] * block_keys + i % block_keys; }

 private:
  // The number of blocks that begin before tile `end`. Usually all do.
  __device__ int blocks_before(int end) const {
    int low = 0, high = count;
    int middle = count - 1;
    while (low < high) {
      if (blocks[middle] * block_keys < end) {
        low = middle + 1;
      } else {
        high = middle;
      }
      middle = (low + high) / 2;
    }
    return low;
  }
};

// A row tile of one head, and the key tiles it visits, from the last one down.
struct PatternWork {
  int batch, head, row;
  int visited;
  int partial;  // the first this many tiles have hidden keys
  PatternRow list;

  __device__ int tiles() const { return visited; }
  __device__ int tile(int i) const { return list.tile(visited - 1 - i); }
};

__device__ inline Lengths lengths_of(const HopperCall& call, const PatternWork&) {
  return {call.n_q, call.n_k};
}
__device__ inline int first_query(const PatternWork&) { return 0; }

template <int rows, int keys>
__device__ PatternWork find_pattern_work(const HopperCall& call, int item) {
  PatternWork work;
  const Place place = find_place(call, item);
  work.batch = place.batch;
  work.head = place.head;
  // Row tiles are aligned to blocks: the last one may not be full.
  const int block_row = place.turn / call.block_rows, within = place.turn % call.block_rows;
  const int row_tile = call.longest_first == nullptr
                           ? call.row_tiles - 1 - place.turn
                           : call.longest_first[block_row] * call.block_rows + within;
  work.row = row_tile * rows;
  const std::int64_t* offsets = call.offsets + row_tile / call.block_rows;
  work.list = {call.indices + offsets[0], static_cast<int>(offsets[1] - offsets[0]),
               call.block_keys};

  const int shift = call.n_k - call.n_q;  // from a row to its position
  const int first = work.row + shift, last = min(work.row + rows, call.n_q) - 1 + shift;
  const auto keys_of = [&](int position) {
    return call.right < 0 ? call.n_k : max(0, min(call.n_k, position + call.right + 1));
  };
  const int end = (keys_of(last) + keys - 1) / keys, full_end = keys_of(first) / keys;
  work.visited = work.list.tiles_before(end);
  work.partial = full_end == end ? 0 : work.visited - work.list.tiles_before(full_end);
  return work;
}

// All rows of an item visit the same tiles.
struct PatternSpan {
  int tiles, partial;
  static constexpr int begin = 0;
  int end;

  __device__ bool full(int i) const { return i >= partial; }
};

template <int keys>
__device__ PatternSpan find_span(const HopperCall&, const PatternWork& work, int) {
  // Broadcast, so that the compiler knows that the warp does not diverge here.
  const int tiles = __shfl_sync(0xffffffffu, work.visited, 0);
  return {tiles, __shfl_sync(0xffffffffu, work.partial, 0), tiles};
}

}  // namespace tessera::cuda::hopper
