// The steps of a slab of weights in a warp: load, decode, multiply with mma.sync, store the sums
// (stream.cuh, strips.cuh).
#pragma once

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/portable/slots.h"
#include "cuda/tile/mma.cuh"

namespace tessera::cuda {

template <int kWords>
struct SlabPair {
  std::uint32_t words[2][kWords];
  RawScales scales;
};

// A decoded slab: the codes' registers are free for the next load.
template <ScaleMode S>
struct Decoded {
  Fragments a;
  float scales[2];  // of ScaleMode::sums
};

template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void decode_slab(const SlabPair<TileFormat<F, T>::kWords>& pair, int slab,
                                   RowState& rows, Decoded<S>& to) {
  decode_words<F, S, Z, T>(pair.words[slab], pair.scales, slab, rows, to.a);
  if constexpr (S == ScaleMode::fragments) {
    scale_fragments<F, T>(pair.scales, slab, rows.inverse, to.a);
  } else if constexpr (S == ScaleMode::sums) {
    scale_values<F>(pair.scales, slab, to.scales);
#pragma unroll
    for (int side = 0; side < 2; ++side) to.scales[side] *= rows.inverse[side];
  }
}

// low, high: this lane's 16 activations of the slab, of which each step takes four.
template <ScaleMode S, typename T>
__device__ inline void multiply_slab(const Decoded<S>& weights, const uint4& low, const uint4& high,
                                     float (&sums)[4]) {
  const Halves b[4][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
  if constexpr (S == ScaleMode::sums) {
    float slab_sums[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_16x8x16(slab_sums, weights.a[j], b[j], T{});
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] += weights.scales[r / 2] * slab_sums[r];
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_16x8x16(sums, weights.a[j], b[j], T{});
  }
}

// Puts the sums of a tile and kTokens tokens into a slot.
template <int kTokens>
__device__ inline void put_sums(float* slot, int lane, const float (&sums)[kTokens / 8][4]) {
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int m = c * 8 + lane % 4 * 2 + r % 2, row = lane / 4 + r / 2 * 8;
      slot[m * kSlotPitch + row] = sums[c][r];
    }
  }
}

}  // namespace tessera::cuda
