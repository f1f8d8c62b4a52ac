// Attention, forward, by mma.sync, for dense batches: cuda.dense, f16 and bf16 on every GPU from
// sm_80 on.
//
// The idea: mma.cuh for simple calls. Rows are equally spaced, the mask is a band, and nothing
// comes between the scores and their softmax. All addresses then follow from one address. The
// registers that the other cases would need leave room to compute weights while products run
// (dense_warp.cuh).
//
//                  keys ->  tile 0  tile 1  tile 2  tile 3
//                         +-------+-------+-------+-------+
//   a block: rows   warp 0|       |       | part  | skip  |   A block of four warps takes a tile of
//   of one head     warp 1| full  | full  | part  | skip  |   query rows of one head and goes over
//                   warp 2|       |       | part  | skip  |   the tiles of keys that they see. Each
//                   warp 3|       |       | part  | skip  |   warp has 16 or 32 of the rows.
//                         +-------+-------+-------+-------+
//
// Where shared memory has room, values have two buffers, so that they arrive one tile ahead:
//
//   copies      K0 V0 | V1     | K1              | V2     | K2
//   products            Q K0   |  softmax, P V0    Q K1   |  softmax, P V1
//
// examples/learn teaches this in step 5 (tensor cores) and step 6 (swizzled shared memory).
#pragma once

#include <algorithm>
#include <bit>
#include <climits>
#include <cstddef>
#include <cstdint>

#include "cuda/attention/portable/dense_call.h"
#include "cuda/attention/portable/dense_warp.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/swizzled_rows.cuh"
#include "cuda/tile/thread_index.cuh"

namespace tessera::cuda::dense {

template <int dim, DenseTiles tiles>
struct Shared {
  static constexpr int kRowBytes = SwizzledRows<dim>::kRowBytes;
  static constexpr int kPlace = tiles.keys * kRowBytes;
  unsigned char q[tiles.rows() * kRowBytes];  // later the output
  unsigned char k[kPlace], v[tiles.value_places][kPlace];
  // Read when needed, so that they take no registers from the sums.
  const unsigned char *first_key, *first_value;  // of the head
  int batch, head, first_row;                    // of the block
};

// The key tiles that some of the rows see in part, and the tiles among them that all rows see
// whole.
struct TileSpan {
  int begin, end, full_begin, full_end;

  __device__ bool full(int tile) const { return tile >= full_begin && tile < full_end; }
};

// The tiles of rows [first, last] of a head.
template <int keys>
__device__ TileSpan find_tiles(const DenseCall& call, int first, int last) {
  const int n_k = call.n_k, shift = n_k - call.n_q;  // from a row to its position
  const auto clamped = [&](int key) { return std::min(std::max(key, 0), n_k); };
  const int begin = call.left < 0 ? 0 : clamped(first + shift - call.left);
  const int end = call.right < 0 ? n_k : clamped(last + shift + call.right + 1);
  const int full_begin = call.left < 0 ? 0 : clamped(last + shift - call.left);
  const int full_end = call.right < 0 ? n_k : clamped(first + shift + call.right + 1);
  if (begin >= end || first > last) return {0, 0, 0, 0};
  return {begin / keys, (end + keys - 1) / keys, (full_begin + keys - 1) / keys, full_end / keys};
}

// Starts the copies of `rows` rows from `from` on. Rows from `there` on are filled with zeros.
template <int dim, int rows>
__device__ void load_rows(unsigned char* to, const unsigned char* from, int row_stride, int there,
                          int chunks) {
  using Layout = SwizzledRows<dim>;
  // kColumns threads share a row: each copies every kColumns-th chunk of every kAtOnce-th row.
  constexpr int kColumns = 1 << std::countr_zero(static_cast<unsigned>(Layout::kChunks));
  constexpr int kAtOnce = kDenseThreads / kColumns;
  static_assert(rows % kAtOnce == 0);
  const int thread = fresh_thread_index(), row = thread / kColumns, column = thread % kColumns;
  const unsigned char* at = from + std::int64_t{row} * row_stride + 16 * column;
#pragma unroll
  for (int chunk = 0; chunk < Layout::kChunks; chunk += kColumns) {
    const int left = column + chunk < chunks ? there - row : 0;
#pragma unroll
    for (int i = 0; i < rows / kAtOnce; ++i) {
      // Rows that are eight apart have the same swizzle.
      const std::uint32_t place =
          kAtOnce % 8 == 0 ? Layout::at(row, column + chunk) + i * kAtOnce * Layout::kRowBytes
                           : Layout::at(row + i * kAtOnce, column + chunk);
      copy_async(to + place, at + std::int64_t{i * kAtOnce} * row_stride + 16 * chunk,
                 i * kAtOnce < left);
    }
  }
}

// Sets the scores of tile `tile` that a row does not see to -inf. `first` is the block's first row.
template <int row_tiles, int n_keys>
__device__ void hide(const DenseCall& call, float (&s)[row_tiles][n_keys][4], int first, int tile) {
  const int thread = fresh_thread_index(), lane = thread % 32, n_k = call.n_k;
  const int column = tile * 8 * n_keys + 2 * (lane % 4);  // of the lane's first element
#pragma unroll
  for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int p =
          first + 16 * (thread / 32 * row_tiles + m) + 8 * side + lane / 4 + n_k - call.n_q;
      // Relative to the lane's columns, so that the comparisons below are with constants.
      const int end = (call.right < 0 ? n_k : std::min(n_k, p + call.right + 1)) - column;
      const int begin = call.left < 0 ? INT_MIN : p - call.left - column;
#pragma unroll
      for (int n = 0; n < n_keys; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool hidden = 8 * n + i >= end || 8 * n + i < begin;
          if (hidden) s[m][n][2 * side + i] = -INFINITY;
        }
      }
    }
  }
}

// Stores a warp's rows, from `first` on, by way of their places in shared memory.
template <typename T, int dim, DenseTiles tiles>
__device__ void store(const DenseCall& call, const Warp<T, dim, tiles>& warp, unsigned char* shared,
                      int batch, int head, int first) {
  using Layout = SwizzledRows<dim>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < tiles.row_tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = 16 * m + 8 * side + lane / 4;
      const float sum = tile::quad_sum(warp.rows.sum[m][side]);
      const float factor = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
      for (int n = 0; n < dim / 8; ++n) {
        const float* pair = &warp.rows.out[m][n][2 * side];
        *reinterpret_cast<std::uint32_t*>(shared + Layout::at(row, n) + 4 * (lane % 4)) =
            pack(factor * pair[0], factor * pair[1], T());
      }
      if (call.lse != nullptr && lane % 4 == 0 && first + row < call.n_q) {
        constexpr float kLn2 = 0.6931471805599453f;
        call.lse[batch * call.lse_batch_stride + head * call.lse_head_stride +
                 (first + row) * call.lse_row_stride] =
            sum == 0.f ? -INFINITY : (warp.rows.largest[m][side] + log2f(sum)) * kLn2;
      }
    }
  }
  __syncwarp();
  unsigned char* to = static_cast<unsigned char*>(call.out.data) + batch * call.out.batch_stride +
                      head * call.out.head_stride;
#pragma unroll 4
  for (int i = lane; i < 16 * tiles.row_tiles * Layout::kChunks; i += 32) {
    const int row = i / Layout::kChunks, chunk = i % Layout::kChunks;
    if (first + row >= call.n_q || chunk >= call.chunks) continue;
    *reinterpret_cast<uint4*>(to + std::int64_t{first + row} * call.out.row_stride + 16 * chunk) =
        *reinterpret_cast<const uint4*>(shared + Layout::at(row, chunk));
  }
}

// W is a Warp<type, dim, tiles>.
template <typename W>
__global__ void __launch_bounds__(kDenseThreads, 2) attend(const __grid_constant__ DenseCall call) {
  constexpr int dim = W::kDim;
  constexpr DenseTiles tiles = W::kTiles;
  constexpr int kRows = tiles.rows(), kKeys = tiles.keys, kWarpRows = 16 * tiles.row_tiles;
  using S = Shared<dim, tiles>;
  S& shared = *dynamic_shared<S>();

  // The last rows of a head come first: under a causal mask they take longest.
  const int item = static_cast<int>(blockIdx.x), index = item / call.row_tiles;
  const int batch = index / call.heads, head = index % call.heads;
  const int block_first = (call.row_tiles - 1 - item % call.row_tiles) * kRows;
  const int w = static_cast<int>(threadIdx.x) / 32, first = block_first + w * kWarpRows;
  const auto rows_from = [&, n_q = call.n_q](int row, int n) {
    return find_tiles<kKeys>(call, row, std::min(row + n, n_q) - 1);
  };
  const TileSpan all = rows_from(block_first, kRows);
  TileSpan mine = rows_from(first, kWarpRows);
  if (mine.begin >= mine.end) mine = {all.end, all.end, 0, 0};

  const auto of_head = [&](const DenseRows<const void>& rows, int h) {
    return static_cast<const unsigned char*>(rows.data) + batch * rows.batch_stride +
           h * rows.head_stride;
  };
  if (threadIdx.x == 0) {
    shared.first_key = of_head(call.k, head / call.group);
    shared.first_value = of_head(call.v, head / call.group);
    shared.batch = batch;
    shared.head = head;
    shared.first_row = block_first;
  }
  load_rows<dim, kRows>(shared.q,
                        of_head(call.q, head) + std::int64_t{block_first} * call.q.row_stride,
                        call.q.row_stride, call.n_q - block_first, call.chunks);
  __syncthreads();
  const auto load = [&](unsigned char* to, const unsigned char* first_row, int row_stride, int t) {
    load_rows<dim, kKeys>(to, first_row + std::int64_t{t * kKeys} * row_stride, row_stride,
                          call.n_k - t * kKeys, call.chunks);
  };
  const auto load_keys = [&](int t) {
    if (t < all.end) load(shared.k, shared.first_key, call.k.row_stride, t);
    close_copy_group();
  };
  const auto load_values = [&](int t) {
    constexpr int kPlaces = tiles.value_places;
    if (t < all.end) load(shared.v[t % kPlaces], shared.first_value, call.v.row_stride, t);
    close_copy_group();
  };
  // Waits until the keys of tile t have arrived and no warp still reads the last tile's values.
  const auto await_keys = [&](int t) {
    wait_for_copies<0>();
    __syncthreads();
    load_values(t + tiles.value_places - 1);
  };
  // Waits until the tile's values have arrived and no warp still reads its keys.
  const auto await_values = [&](int t) {
    wait_for_copies<tiles.value_places - 1>();
    __syncthreads();
    load_keys(t + 1);
  };

  W warp(shared.q, w * kWarpRows * S::kRowBytes, offsetof(S, k), offsetof(S, v),
         call.exponent_scale);
  int t = all.begin;
  load_keys(t);
  if (tiles.value_places > 1) load_values(t);
  for (; t < mine.begin; ++t) {
    await_keys(t);
    await_values(t);
  }
  for (; t < mine.end; ++t) {
    Scores<tiles.row_tiles, kKeys> s;
    await_keys(t);
    warp.score(s);
    await_values(t);
    if (!mine.full(t)) hide(call, s, shared.first_row, t);
    warp.add(s, static_cast<std::uint32_t>(t % tiles.value_places * S::kPlace));
  }
  for (; t < all.end; ++t) {
    await_keys(t);
    await_values(t);
  }
  wait_for_copies<0>();
  __syncthreads();  // without keys, other threads may still be loading queries
  const int warp_row = fresh_thread_index() / 32 * kWarpRows;
  store(call, warp, shared.q + warp_row * S::kRowBytes, shared.batch, shared.head,
        shared.first_row + warp_row);
}

}  // namespace tessera::cuda::dense
