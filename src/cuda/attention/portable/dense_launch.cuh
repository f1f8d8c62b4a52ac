// Included by every instance file of the dense kernel.
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/dense.cuh"
#include "cuda/attention/portable/dense_call.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::dense {

// Strides of 16-bit elements, in bytes. The stride of a dimension of size 1 may be anything.
template <typename Void>
DenseRows<Void> in_bytes(const HeadRows& rows, std::int64_t n) {
  return {.data = rows.data,
          .batch_stride = 2 * rows.batch_stride,
          .head_stride = 2 * rows.head_stride,
          .row_stride = n > 1 ? static_cast<std::int32_t>(2 * rows.row_stride) : 0};
}

inline DenseCall dense_call(const AttentionCall& call, int tile_rows) {
  return {.q = in_bytes<const void>(call.q, call.n_q),
          .k = in_bytes<const void>(call.k, call.n_k),
          .v = in_bytes<const void>(call.v, call.n_k),
          .out = in_bytes<void>(call.out, call.n_q),
          .lse = call.lse,
          .lse_batch_stride = call.lse_strides[0],
          .lse_head_stride = call.lse_strides[1],
          .lse_row_stride = call.lse_strides[2],
          .heads = static_cast<int>(call.heads),
          .group = static_cast<int>(call.group),
          .n_q = static_cast<int>(call.n_q),
          .n_k = static_cast<int>(call.n_k),
          .row_tiles = static_cast<int>(tiles_of(call.n_q, tile_rows)),
          .chunks = call.dim / 8,
          .left = static_cast<int>(call.mask.left),
          .right = static_cast<int>(call.mask.right),
          .exponent_scale = call.q_factor};
}

template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call) {
  using W = Warp<T, dim, dense_tiles(dim)>;
  const DenseCall kernel_call = dense_call(call, W::kTiles.rows());
  const std::int64_t blocks = call.sequences * call.heads * kernel_call.row_tiles;
  if (blocks == 0) return;
  const Launch start(ctx, "attention");
  constexpr int kBytes = static_cast<int>(sizeof(Shared<dim, W::kTiles>));
  start(attend<W>, {.blocks = blocks, .threads = kDenseThreads, .shared_bytes = kBytes},
        kernel_call);
}

}  // namespace tessera::cuda::dense
