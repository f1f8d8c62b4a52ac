// A warp of the dense attention kernel: where its rows, keys and values lie in shared memory, and
// what it does with a tile of them (fragments.cuh).
#pragma once

#include <cstdint>

#include "cuda/attention/portable/dense_call.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/swizzled_rows.cuh"

namespace tessera::cuda::dense {

template <typename T, int dim, DenseTiles tiles>
class Warp {
 public:
  using Element = T;
  static constexpr int kDim = dim;
  static constexpr DenseTiles kTiles = tiles;
  using Layout = SwizzledRows<dim>;
  static constexpr int kM = tiles.row_tiles, kKeys = tiles.keys;

  // Offsets in `shared` of the warp's rows of queries, of the keys, and of the first values.
  __device__ Warp(const unsigned char* shared, std::uint32_t queries, std::uint32_t keys,
                  std::uint32_t values, float exponent_scale)
      : shared_(shared), scale_(exponent_scale) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    queries_ = queries + Layout::at(lane % 16, lane / 16);
    keys_ = keys + Layout::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    values_ = values + Layout::at(lane % 16, lane / 16);
    rows.clear();
  }

  // s = Q K^T
  __device__ void score(Scores<kM, kKeys>& s) const {
#pragma unroll
    for (int i = 0; i < kM * kKeys / 2; ++i)
      s[i / 4 / (kKeys / 8)][i / 4 % (kKeys / 8)][i % 4] = 0.f;
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      std::uint32_t a[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        load_matrices(a[m], shared_ + Layout::moved(queries_, 2 * k) + m * 16 * Layout::kRowBytes);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        std::uint32_t b[4];
        load_matrices(b, shared_ + Layout::moved(keys_, 2 * k) + n * 16 * Layout::kRowBytes);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma_16x8x16(s[m][2 * n], a[m], {b[0], b[1]}, T());
          mma_16x8x16(s[m][2 * n + 1], a[m], {b[2], b[3]}, T());
        }
      }
    }
  }

  // Adds a tile's values, weighted by its scores. They lie `place` bytes after the first tile's
  // values.
  __device__ void add(const Scores<kM, kKeys>& s, std::uint32_t place) {
    take_in<T>(scale_, s, rows, [&](int k, int n, std::uint32_t(&b)[4]) {
      load_matrices_transposed(
          b, shared_ + Layout::moved(values_ + place, 2 * n) + k * 16 * Layout::kRowBytes);
    });
  }

  WarpRows<kM, dim> rows;

 private:
  const unsigned char* shared_;
  std::uint32_t queries_, keys_, values_;  // offsets of what the lane passes to ldmatrix
  float scale_;
};

}  // namespace tessera::cuda::dense
