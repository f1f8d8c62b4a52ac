// Which rows a block takes next, which tiles of keys they see, and which keys of a tile are hidden.
#pragma once

#include "cuda/attention/hopper_call.h"

namespace tessera::cuda::hopper {

// A tile of rows of one head, and the tiles of keys it sees: from band_end down, band_tiles of
// them, then the sinks' down to 0.
struct Work {
  int batch, head, row;
  int band_end, band_tiles, sink_tiles;

  __device__ int tiles() const { return band_tiles + sink_tiles; }
  __device__ int tile(int i) const {
    return i < band_tiles ? band_end - 1 - i : sink_tiles - 1 - (i - band_tiles);
  }
};

template <int rows, int keys>
__device__ Work find_work(const HopperCall& call, int item) {
  Work work;
  const int section_items = call.section_heads * call.row_tiles;
  const int section = item / section_items, within = item % section_items;
  const int first_head = section * call.section_heads;
  const int heads = min(call.section_heads, call.batch * call.heads - first_head);
  const int head = first_head + within % heads;
  work.batch = head / call.heads;
  work.head = head % call.heads;
  work.row = (call.row_tiles - 1 - within / heads) * rows;

  const int shift = call.n_k - call.n_q;  // from a row to its position
  const int first = work.row + shift, last = min(work.row + rows, call.n_q) - 1 + shift;
  const int end = call.right < 0 ? call.n_k : max(0, min(call.n_k, last + call.right + 1));
  const int begin = call.left < 0 ? 0 : max(0, first - call.left);
  work.band_end = (end + keys - 1) / keys;
  const int band_begin = min(work.band_end, begin / keys);
  work.band_tiles = work.band_end - band_begin;
  work.sink_tiles = min(band_begin, (min(call.n_sink, end) + keys - 1) / keys);
  return work;
}

// The keys that 64 rows see.
class Band {
 public:
  __device__ Band(const HopperCall& call, int row) : call_(call) {
    position_ = row + call.n_k - call.n_q;
  }

  // s = -inf where a key is hidden, for a tile of scores as a warpgroup has them.
  template <int keys>
  __device__ void hide(float (&s)[keys / 2], int tile) const {
    const int k0 = tile * keys;
    if (all_seen(k0, k0 + keys)) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int column = k0 + 2 * (lane % 4);  // of the lane's first element
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int p = position_ + 16 * warp + lane / 4 + 8 * r;
      // Relative to the lane's columns, so that below there are only constants to compare with.
      const int end = (call_.right < 0 ? call_.n_k : min(call_.n_k, p + call_.right + 1)) - column;
      if (call_.left < 0) {
        hide_unless<keys>(s, r, [=](int c) { return c < end; });
      } else {
        const int begin = p - call_.left - column, sinks = call_.n_sink - column;
        hide_unless<keys>(s, r, [=](int c) { return c < end && (c >= begin || c < sinks); });
      }
    }
  }

 private:
  template <int keys, typename Seen>
  __device__ static void hide_unless(float (&s)[keys / 2], int r, Seen seen) {
#pragma unroll
    for (int j = 0; j < keys / 4; ++j) {
      float& x = s[j / 2 * 4 + 2 * r + j % 2];
      if (!seen(j / 2 * 8 + j % 2)) x = -INFINITY;
    }
  }
  __device__ bool all_seen(int k0, int k1) const {
    const int last = position_ + 63;
    return k1 <= call_.n_k && (call_.right < 0 || k1 - 1 <= position_ + call_.right) &&
           (call_.left < 0 || k0 >= last - call_.left || k1 <= call_.n_sink);
  }

  const HopperCall& call_;
  int position_;
};

}  // namespace tessera::cuda::hopper
