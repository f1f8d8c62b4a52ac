// Which rows a block takes next, which tiles of keys they see, and which keys of a tile are hidden.
#pragma once

#include "cuda/attention/hopper/call.h"

namespace tessera::cuda::hopper {

// A row tile of one head, and the key tiles it sees: band_tiles tiles from band_end down, then the
// sinks' tiles down to 0. Row tiles are counted from the last row up. The tile that is not full
// then has the first rows, which see the fewest keys under a causal mask; its `row` may be
// negative.
struct Work {
  int batch, head, row;
  int band_end, band_tiles, sink_tiles;

  __device__ int tiles() const { return band_tiles + sink_tiles; }
  __device__ int tile(int i) const {
    return i < band_tiles ? band_end - 1 - i : sink_tiles - 1 - (i - band_tiles);
  }
};

// An item's head, and the number of its row tile in the head's order of work.
struct Place {
  int batch, head, turn;
};

__device__ inline Place find_place(const HopperCall& call, int item) {
  const int section_items = call.section_heads * call.row_tiles;
  const int section = item / section_items, within = item % section_items;
  const int first_head = section * call.section_heads;
  const int heads = min(call.section_heads, call.batch * call.heads - first_head);
  const int head = first_head + within % heads;
  return {head / call.heads, head % call.heads, within / heads};
}

// Queries and keys of an item's sequence.
struct Lengths {
  int n_q, n_k;

  __device__ int shift() const { return n_k - n_q; }  // from a row to its position
};
__device__ inline Lengths lengths_of(const HopperCall& call, const Work&) {
  return {call.n_q, call.n_k};
}
// Where the sequence's rows begin in q and out.
__device__ inline int first_query(const Work&) { return 0; }

// Turn t of a sequence: its rows, and the keys that they see.
template <int rows, int keys>
__device__ void find_band(const HopperCall& call, int turn, Lengths lengths, Work& work) {
  work.row = lengths.n_q - (turn + 1) * rows;
  const int first = max(work.row, 0) + lengths.shift();
  const int last = work.row + rows - 1 + lengths.shift();
  const int end = call.right < 0 ? lengths.n_k : max(0, min(lengths.n_k, last + call.right + 1));
  const int begin = call.left < 0 ? 0 : max(0, first - call.left);
  work.band_end = (end + keys - 1) / keys;
  const int band_begin = min(work.band_end, begin / keys);
  work.band_tiles = work.band_end - band_begin;
  work.sink_tiles = min(band_begin, (min(call.n_sink, end) + keys - 1) / keys);
}

template <int rows, int keys>
__device__ Work find_work(const HopperCall& call, int item) {
  Work work;
  const Place place = find_place(call, item);
  work.batch = place.batch;
  work.head = place.head;
  find_band<rows, keys>(call, place.turn, {call.n_q, call.n_k}, work);
  return work;
}

// The tiles of an item that a warpgroup's 64 rows see in part, and those they see whole. Numbered
// like Work::tile().
struct Span {
  int tiles;  // of the item
  int begin, end;
  int full_begin, full_count;

  __device__ bool full(int i) const {
    return static_cast<unsigned>(i - full_begin) < static_cast<unsigned>(full_count);
  }
};

template <int keys, typename Item>
__device__ Span find_span(const HopperCall& call, const Item& work, int row) {
  const Lengths lengths = lengths_of(call, work);
  const int n_k = lengths.n_k, shift = lengths.shift();
  const int first = max(row, 0) + shift, last = row + 63 + shift;
  const int end = call.right < 0 ? n_k : min(n_k, last + call.right + 1);
  const int tiles = work.tiles();
  if (row <= -64 || end <= 0) return {tiles, tiles, tiles, 0, 0};
  Span span{tiles, work.band_end - (end + keys - 1) / keys, tiles, 0, 0};
  const int seen_by_all = call.right < 0 ? n_k : min(n_k, first + call.right + 1);
  span.full_begin = work.band_end - max(0, seen_by_all) / keys;
  int full_end = work.band_tiles;
  if (call.left >= 0) {
    if (call.n_sink == 0) span.end = min(tiles, work.band_end - max(0, first - call.left) / keys);
    full_end = min(full_end, work.band_end - (max(0, last - call.left) + keys - 1) / keys);
  }
  span.full_count = max(0, full_end - span.full_begin);
  span.begin = min(span.begin, span.end);
  return span;
}

// s = -inf for hidden keys, in a tile of scores of the warpgroup whose rows start at `row`.
template <int keys, typename Seen>
__device__ void hide_unless(float (&s)[keys / 2], int r, Seen seen) {
#pragma unroll
  for (int j = 0; j < keys / 4; ++j) {
    float& x = s[j / 2 * 4 + 2 * r + j % 2];
    if (!seen(j / 2 * 8 + j % 2)) x = -INFINITY;
  }
}

template <int keys>
__device__ void hide(const HopperCall& call, Lengths lengths, float (&s)[keys / 2], int row,
                     int tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int column = tile * keys + 2 * (lane % 4);  // of the lane's first element
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int p = row + 16 * warp + lane / 4 + 8 * r + lengths.shift();
    // Relative to the lane's columns, so that the comparisons below are with constants.
    const int end = (call.right < 0 ? lengths.n_k : min(lengths.n_k, p + call.right + 1)) - column;
    if (call.left < 0) {
      hide_unless<keys>(s, r, [=](int c) { return c < end; });
    } else {
      const int begin = p - call.left - column, sinks = call.n_sink - column;
      hide_unless<keys>(s, r, [=](int c) { return (c < end) & ((c >= begin) | (c < sinks)); });
    }
  }
}

}  // namespace tessera::cuda::hopper
