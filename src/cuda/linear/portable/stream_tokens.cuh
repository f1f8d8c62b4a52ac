// Up to 8 or 16 rows of activations in stream.cuh: each is a column of what the tensor cores make.
#pragma once

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/slab.cuh"

namespace tessera::cuda {

// Rows in shared memory, 16 bytes apart beyond their length: then the eight rows of a fragment lie
// in different banks.
TESSERA_HOST_DEVICE inline int x_pitch(int pairs) { return pairs * kPair + 8; }  // elements

// A warp's sums of the tile that it is at.
template <Format F, ScaleMode S, bool Z, typename T, int kColumns>
struct StreamColumnSums {
  static constexpr int kTiles = kColumns / 8;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  const T* x[kTiles];  // what the lane has of it
  float sums[2][kTiles][4] = {};

  // Lanes of rows that are not there work on a row that is; nobody reads their sums.
  __device__ StreamColumnSums(const T* shared, int rows, int pitch, int lane) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      x[c] = shared + min(lane / 4 + 8 * c, rows - 1) * pitch + lane % 4 * 16;
    }
  }

  __device__ void multiply_slab(const Decoded<S>& weights, int slab, int column) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const auto* vectors = reinterpret_cast<const uint4*>(x[c] + column + slab * kSlab);
      cuda::multiply_slab<S, T>(weights, vectors[0], vectors[1], sums[slab][c]);
    }
  }

  // A pair of slabs, `column` on in x; load_next() overwrites it.
  template <typename Load>
  __device__ void multiply(SlabPair<kWords>& pair, int column, RowState& rows, Load&& load_next) {
    Decoded<S> decoded[2];
    decode_slab<F, S, Z, T>(pair, 0, rows, decoded[0]);
    multiply_slab(decoded[0], 0, column);
    decode_slab<F, S, Z, T>(pair, 1, rows, decoded[1]);
    load_next();
    multiply_slab(decoded[1], 1, column);
  }

  // The tile's, into a slot; those of the next begin.
  __device__ void put(float* slot, int lane) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[0][c][r] += sums[1][c][r];
    }
    put_sums<kColumns>(slot, lane, sums[0]);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[0][c][r] = sums[1][c][r] = 0;
    }
  }
};

}  // namespace tessera::cuda
