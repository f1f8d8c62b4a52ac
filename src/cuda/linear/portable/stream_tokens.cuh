// Up to 8 or 16 tokens in stream.cuh: each is a column of the tensor cores' product.
#pragma once

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/slab.cuh"

namespace tessera::cuda {

// The pitch of tokens in shared memory: 16 bytes more than their length, so that the eight tokens
// of a fragment lie in different banks.
TESSERA_HOST_DEVICE inline int x_pitch(int pairs) { return pairs * kPair + 8; }  // elements

// A warp's sums of its current tile.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
struct StreamTokenSums {
  static constexpr int kTiles = kTokens / 8;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  const T* x[kTiles];  // the lane's part of x
  float sums[2][kTiles][4] = {};

  // Lanes of tokens that do not exist repeat one that does; their sums are never read.
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

  // Multiplies a pair of slabs, from depth `k` of x on; load_next() overwrites the pair.
  template <typename Load>
  __device__ void multiply(SlabPair<kWords>& pair, int k, RowState& rows, Load&& load_next) {
    Decoded<S> decoded[2];
    decode_slab<F, S, Z, T>(pair, 0, rows, decoded[0]);
    multiply_slab(decoded[0], 0, k);
    decode_slab<F, S, Z, T>(pair, 1, rows, decoded[1]);
    load_next();
    multiply_slab(decoded[1], 1, k);
  }

  // Puts the tile's sums into a slot and starts the next tile's.
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
