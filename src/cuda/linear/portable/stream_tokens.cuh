// Up to 8 or 16 tokens in stream.cuh: each is a column of the tensor cores' product.
#pragma once

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/slab.cuh"

namespace tessera::cuda {

// Tokens in shared memory, 16 bytes apart beyond their length: then the eight of a fragment lie in
// different banks.
TESSERA_HOST_DEVICE inline int x_pitch(int pairs) { return pairs * kPair + 8; }  // elements

// A warp's sums of the tile that it is at.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
struct StreamTokenSums {
  static constexpr int kTiles = kTokens / 8;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  const T* x[kTiles];  // what the lane has of it
  float sums[2][kTiles][4] = {};

  // Lanes of tokens that are not there work on a token that is; nobody reads their sums.
  __device__ StreamTokenSums(const T* shared, int m, int pitch, int lane) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      x[c] = shared + min(lane / 4 + 8 * c, m - 1) * pitch + lane % 4 * 16;
    }
  }

  __device__ void multiply_slab(const Decoded<S>& weights, int slab, int k) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const auto* vectors = reinterpret_cast<const uint4*>(x[c] + k + slab * kSlab);
      cuda::multiply_slab<S, T>(weights, vectors[0], vectors[1], sums[slab][c]);
    }
  }

  // A pair of slabs, from depth `k` of x on; load_next() overwrites it.
  template <typename Load>
  __device__ void multiply(SlabPair<kWords>& pair, int k, RowState& rows, Load&& load_next) {
    Decoded<S> decoded[2];
    decode_slab<F, S, Z, T>(pair, 0, rows, decoded[0]);
    multiply_slab(decoded[0], 0, k);
    decode_slab<F, S, Z, T>(pair, 1, rows, decoded[1]);
    load_next();
    multiply_slab(decoded[1], 1, k);
  }

  // The tile's, into a slot; those of the next begin.
  __device__ void put(float* slot, int lane) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[0][c][r] += sums[1][c][r];
    }
    put_sums<kTokens>(slot, lane, sums[0]);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[0][c][r] = sums[1][c][r] = 0;
    }
  }
};

}  // namespace tessera::cuda
