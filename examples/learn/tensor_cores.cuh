// The kernel of steps 5 and 6: that of step 4, with its products by mma.sync, one warp at a time.
// A warp has 16 of the block's 64 queries. One product leaves the scores in registers in the layout
// in which the next takes its weights, so they never go through shared memory.
//
//                      64 keys = 8 x 8
//                   +--+--+--+-- ... -+      A fragment of scores is 16 x 8: lane l has
//                   |  |  |  |        |      row l / 4,     columns 2 (l % 4) and the next  [0] [1]
//           64 dims |  |K^T  |        |      row l / 4 + 8, the same                        [2] [3]
//                   +--+--+--+-- ... -+      so a row is shared by four lanes.
//          +------+ +--+--+--+-- ... -+
//  16 rows |  Q   | |s0|s1|s2|     s7 |      Two neighbours, rounded to f16, are a fragment of
//          +------+ +--+--+--+-- ... -+      weights, 16 x 16, for the product with 16 rows of V.
//
// ldmatrix brings 8 x 8 numbers from shared memory to the fragment's places: each lane names one
// row of 16 bytes. Steps 5 and 6 differ only in where a row lies.
#pragma once

#include <cmath>

#include "cuda/tile/exp2.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"
#include "learn.h"

namespace tessera::learn {

// 64 rows of 64 numbers: a row is eight chunks of 16 bytes.
struct HalfTile {
  uint4 chunks[kTile][kDim / 8];
};

// Rows first .. first + 63 of a head; zeros beyond the end.
template <typename Layout>
__device__ void load(HalfTile& to, const __half* head, int first, int tokens) {
  const auto* from = reinterpret_cast<const uint4*>(head);
  for (int i = static_cast<int>(threadIdx.x); i < kTile * 8; i += kThreads) {
    const int row = i / 8, chunk = i % 8;
    to.chunks[row][Layout::place(row, chunk)] =
        first + row < tokens ? from[(first + row) * 8 + chunk] : make_uint4(0, 0, 0, 0);
  }
}

// Layout::place(row, chunk): where in its row a chunk lies.
template <typename Layout>
__global__ void __launch_bounds__(kThreads) attend_by_tensor_cores(Problem p) {
  __shared__ HalfTile q, k, v;
  const auto at = [](const HalfTile& tile, int row, int chunk) {
    return &tile.chunks[row][Layout::place(row, chunk)];
  };
  const int tiles = (p.tokens + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int query = (tiles - 1 - block / p.heads) * kTile;
  const std::int64_t head = std::int64_t{block % p.heads} * p.tokens * kDim;
  const int end = p.causal ? min(query + kTile, p.tokens) : p.tokens;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = query + 16 * warp + lane / 4;    // and row + 8
  constexpr float kFactor = 0.125f * 1.44269504f;  // log2(e) / sqrt(64)

  load<Layout>(q, p.q + head, query, p.tokens);
  __syncthreads();
  std::uint32_t queries[4][4];  // 16 rows x 64 dims, which stay in registers
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    cuda::load_matrices(queries[d], at(q, 16 * warp + lane % 16, 2 * d + lane / 16));
  }

  float out[8][4] = {}, sum[2] = {}, largest[2] = {-INFINITY, -INFINITY};
  for (int key = 0; key < end; key += kTile) {
    __syncthreads();  // no thread reads the previous tiles any more
    load<Layout>(k, p.k + head, key, p.tokens);
    load<Layout>(v, p.v + head, key, p.tokens);
    __syncthreads();

    // Scores: 16 keys and 16 dims at a time. Keys are rows of K, so that a fragment of K^T is one
    // of K read as it lies.
    float scores[8][4] = {};
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        std::uint32_t keys[4];
        cuda::load_matrices(keys, at(k, 8 * n + lane % 8 + lane / 16 * 8, 2 * d + lane / 8 % 2));
        cuda::mma_16x8x16(scores[n], queries[d], {keys[0], keys[1]}, Half());
        cuda::mma_16x8x16(scores[n + 1], queries[d], {keys[2], keys[3]}, Half());
      }
    }

    if (key + kTile > p.tokens || (p.causal && key == query)) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = key + 8 * n + 2 * (lane % 4) + i % 2;
          const bool hidden = column >= p.tokens || (p.causal && column > row + i / 2 * 8);
          if (hidden) scores[n][i] = -INFINITY;
        }
      }
    }

    // The softmax of step 3, for the two rows that a lane has a part of.
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        top = fmaxf(top, fmaxf(scores[n][2 * side], scores[n][2 * side + 1]));
      }
      top = fmaxf(largest[side], cuda::tile::quad_max(top) * kFactor);
      const float rescale = cuda::fast_exp2(largest[side] - top);
      largest[side] = top;
      sum[side] *= rescale;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 2 * side; i < 2 * side + 2; ++i) {
          scores[n][i] = cuda::fast_exp2(scores[n][i] * kFactor - top);
          sum[side] += scores[n][i];
          out[n][i] *= rescale;
        }
      }
    }

    // out += weights V: 16 keys and 16 dims at a time. Here the depth runs down the rows of V:
    // ldmatrix transposes each 8 x 8 piece.
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t weights[4] = {
          cuda::pack(scores[2 * j][0], scores[2 * j][1], Half()),
          cuda::pack(scores[2 * j][2], scores[2 * j][3], Half()),
          cuda::pack(scores[2 * j + 1][0], scores[2 * j + 1][1], Half()),
          cuda::pack(scores[2 * j + 1][2], scores[2 * j + 1][3], Half())};
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        std::uint32_t values[4];
        cuda::load_matrices_transposed(values, at(v, 16 * j + lane % 16, n + lane / 16));
        cuda::mma_16x8x16(out[n], weights, {values[0], values[1]}, Half());
        cuda::mma_16x8x16(out[n + 1], weights, {values[2], values[3]}, Half());
      }
    }
  }

#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float factor = 1.f / cuda::tile::quad_sum(sum[side]);
    if (row + 8 * side >= p.tokens) continue;
    __half* to = p.out + head + (row + 8 * side) * kDim + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
          cuda::pack(out[n][2 * side] * factor, out[n][2 * side + 1] * factor, Half());
    }
  }
}

}  // namespace tessera::learn
