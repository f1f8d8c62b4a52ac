// What the Hopper kernels have in common on the host: lengths that they can count, and rows of
// heads in boxes for the copy engine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/tile/hopper/tensor_map.h"

namespace tessera::cuda {

// Positions and lengths are ints in a kernel, and sums of three of them must not overflow.
inline constexpr std::int64_t kMostHopperRows = std::int64_t{1} << 28;

// A side of the band, as kernels store it.
inline int band_side(std::int64_t width) {
  return static_cast<int>(std::min(width, kMostHopperRows));
}

// n rows of heads, in boxes of `box_rows` rows of one head.
inline tile::BoxedTensor boxed(const AttentionCall& call, const HeadRows& rows, std::int64_t n,
                               std::int64_t heads, int box_rows) {
  return {.data = rows.data,
          .dtype = call.dtype,
          .sizes = {call.dim, n, heads, call.sequences},
          .strides = {rows.row_stride, rows.head_stride, rows.batch_stride},
          .box_rows = box_rows};
}

}  // namespace tessera::cuda
