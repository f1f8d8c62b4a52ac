// The pieces of the plain attention kernels: rows of f32 in shared memory, and two products.
//
//   a block: 8 warps     warp w has some rows of its own: w, w + 8, ...  All warps share a tile of
//                        32 other rows (for a tile of queries 32 keys, or the other way round).
//
//   dot_rows       lane j forms the products of its warp's rows with row j of the tile
//                  [rows, dim] x [32, dim]^T -> [rows, 32], one column in each lane
//   add_weighted   lane l sums elements l, l + 32, ... of the tile's rows, weighted by such columns
//                  [rows, 32] x [32, dim] -> [rows, dim]
//
// Everything is summed in f32, in an order that depends on the sequence alone: the same bits every
// time, wherever the rows lie in memory.
#pragma once

#include <type_traits>

#include "core/philox.h"
#include "cuda/attention/call.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kTileRows = kWarp;  // of the tile that all warps share: one for each lane

// A row takes kWarp * chunks floats and a gap of 4. Rows then begin an odd number of float4 apart,
// and eight lanes that each read a float4 of their own row touch all 32 banks once.
template <int chunks>
inline constexpr int kStride = kWarp* chunks + 4;

__device__ inline int lane() { return threadIdx.x % kWarp; }
__device__ inline int warp() { return threadIdx.x / kWarp; }

// rows[j] = factor_of(j) * row_of(j), for j in [0, n); a null row becomes NaN. The remaining rows
// up to `most`, and the elements of each row beyond dim, become zero. All loads are in flight
// before the first element is stored.
template <typename T, int chunks, int most, typename FactorOf, typename RowOf>
__device__ void load_scaled_rows(float* rows, int n, int dim, FactorOf factor_of, RowOf row_of) {
  float elements[most / kWarps][chunks];
#pragma unroll
  for (int i = 0; i < most / kWarps; ++i) {
    const int j = warp() + i * kWarps;
    const T* from = j < n ? row_of(j) : nullptr;
    const float factor = j < n ? factor_of(j) : 0.f;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      const int d = lane() + c * kWarp;
      elements[i][c] = j < n && d < dim ? nanf("") : 0.f;
      if (from != nullptr && d < dim) elements[i][c] = factor * to_f32(from[d]);
    }
  }
#pragma unroll
  for (int i = 0; i < most / kWarps; ++i) {
    float* to = rows + (warp() + i * kWarps) * kStride<chunks> + lane();
#pragma unroll
    for (int c = 0; c < chunks; ++c) to[c * kWarp] = elements[i][c];
  }
}

template <typename T, int chunks, int most, typename RowOf>
__device__ void load_rows(float* rows, int n, int dim, float factor, RowOf row_of) {
  load_scaled_rows<T, chunks, most>(
      rows, n, dim, [&](int) { return factor; }, row_of);
}

// Rotates row j, for j in [0, n), by position k0 + j. A warp rotates the rows it loaded.
template <int chunks>
__device__ void rotate_rows(const AttentionCall& call, float* rows, int n, std::int64_t k0) {
  __syncwarp();
  for (int j = warp(); j < n; j += kWarps) {
    for (int pair = lane(); pair < call.pairs; pair += kWarp) {
      const CosSin rotation = cos_sin(k0 + j, call.inv_freq[pair]);
      float* first = rows + j * kStride<chunks> + (call.half_split ? pair : 2 * pair);
      float* second = first + (call.half_split ? call.pairs : 1);
      const RotatedPair pair_out = rotated(*first, *second, rotation);
      *first = pair_out.first;
      *second = pair_out.second;
    }
  }
}

// products[r] = (row r of this warp) . (row lane() of the tile)
template <int chunks, int count>
__device__ void dot_rows(const float* rows, const float* tile, int dim, float (&products)[count]) {
  const float4* column = reinterpret_cast<const float4*>(tile + lane() * kStride<chunks>);
  const float4* row[count];
#pragma unroll
  for (int r = 0; r < count; ++r) {
    row[r] = reinterpret_cast<const float4*>(rows + (warp() + r * kWarps) * kStride<chunks>);
    products[r] = 0.f;
  }
  for (int d = 0; d < (dim + 3) / 4; ++d) {
    const float4 b = column[d];
#pragma unroll
    for (int r = 0; r < count; ++r) {
      const float4 a = row[r][d];
      products[r] = fmaf(a.x, b.x, products[r]);
      products[r] = fmaf(a.y, b.y, products[r]);
      products[r] = fmaf(a.z, b.z, products[r]);
      products[r] = fmaf(a.w, b.w, products[r]);
    }
  }
}

// sums[r][c] += sum over j of weights[r] of lane j * (element lane() + 32 c of the tile's row j),
// for the j < n whose bit of seen[r] is set: hidden rows are not even multiplied by 0, as 0 * NaN
// is NaN.
template <int chunks, int count>
__device__ void add_weighted(const float* tile, int n, const float (&weights)[count],
                             const unsigned (&seen)[count], float (&sums)[count][chunks]) {
  for (int j = 0; j < n; ++j) {
    float elements[chunks];
#pragma unroll
    for (int c = 0; c < chunks; ++c) elements[c] = tile[j * kStride<chunks> + c * kWarp + lane()];
#pragma unroll
    for (int r = 0; r < count; ++r) {
      const float weight = __shfl_sync(0xffffffffu, weights[r], j);
      if (seen[r] >> j & 1u) {
#pragma unroll
        for (int c = 0; c < chunks; ++c) sums[r][c] = fmaf(weight, elements[c], sums[r][c]);
      }
    }
  }
}

// row = factor * sums
template <typename T, int chunks>
__device__ void store_row(T* row, int dim, float factor, const float (&sums)[chunks]) {
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    const int d = lane() + c * kWarp;
    if (d < dim) row[d] = from_f32<T>(factor * sums[c]);
  }
}

// The factor by which dropout multiplies a weight: 0, or 1 / (1 - p).
__device__ inline float kept(const AttentionCall& call, const Sequence& s, std::int64_t head,
                             std::int64_t i, std::int64_t j) {
  const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  const PhiloxWords words = dropout_words(call.seed, u32(s.index), u32(head), u32(i), u32(j));
  return words[j % 4] < call.dropout_threshold ? 0.f : call.kept_factor;
}

// ---- launching ----------------------------------------------------------------------------------

// Calls fn(std::integral_constant<int, chunks>) with chunks * 32 >= dim.
template <typename F>
void with_chunks(int dim, F&& fn) {
  if (dim <= 64) return fn(std::integral_constant<int, 2>());
  if (dim <= 128) return fn(std::integral_constant<int, 4>());
  fn(std::integral_constant<int, 8>());
}

// Bytes of shared memory for this many rows. The largest use, 96 rows of 260 floats, fits into the
// 99 KB of the smallest GPU.
constexpr int row_bytes(int rows, int stride) {
  return rows * stride * static_cast<int>(sizeof(float));
}

}  // namespace tessera::cuda
