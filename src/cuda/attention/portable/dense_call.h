// The arguments of the dense attention kernel, and how it divides the work.
#pragma once

#include <cstdint>

#include "cuda/attention/call.h"
#include "tessera/context.h"

namespace tessera::cuda::dense {

inline constexpr int kDenseWarps = 4;
inline constexpr int kDenseThreads = 32 * kDenseWarps;

// A warp has 16 * row_tiles query rows. The block goes over the keys in tiles of `keys`: one tile
// of keys lies in shared memory, and one or two tiles of values.
struct DenseTiles {
  int row_tiles, keys, value_places;

  constexpr int rows() const { return 16 * row_tiles * kDenseWarps; }
};

// The one place that chooses tiles: as many keys as there are registers for scores beside the sums
// (4 * row_tiles * (dim + keys) / 8 of 255). Two blocks share a multiprocessor; the largest block
// fits into 99 KB.
constexpr DenseTiles dense_tiles(int dim) {
  if (dim <= 64) return {.row_tiles = 2, .keys = 128, .value_places = 2};
  if (dim <= 128) return {.row_tiles = 2, .keys = 64, .value_places = 2};
  return {.row_tiles = 1, .keys = 64, .value_places = 1};
}

// A tensor's rows, strides in bytes.
template <typename Void>
struct DenseRows {
  Void* data;
  std::int64_t batch_stride, head_stride;
  std::int32_t row_stride;
};

struct DenseCall {
  DenseRows<const void> q, k, v;
  DenseRows<void> out;
  float* lse;  // null: not wanted
  std::int64_t lse_batch_stride, lse_head_stride, lse_row_stride;
  int heads, group, n_q, n_k;
  int row_tiles;         // tiles of rows of a head
  int chunks;            // of 16 bytes in a row
  int left, right;       // key j is seen from position p where -left <= j - p <= right (-1: open)
  float exponent_scale;  // exponent of 2 = exponent_scale * (q k), not below 0
};

// T is Half or BFloat16; the head dim is at most `dim`.
template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call);

}  // namespace tessera::cuda::dense
