// Decodes a lane's codes of a slab and multiplies them with their block scales, for kernels that
// never apply scales to sums (panels.cuh, wide.cuh, mma.cuh).
#pragma once

#include <type_traits>

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"

namespace tessera::cuda {

// int4 without zero points, in bf16: a code's bits, n 2^-133 (fragments.cuh), times the scale less
// eight times the scale, in one instruction instead of two. Both products are exact, so this rounds
// once, to the same number as (n - 8) times the scale. In f16, where codes are 1024 + n, the
// subtracted product would not be exact.
__device__ inline void int4_scaled(const std::uint32_t (&words)[4], const Halves (&scales)[2],
                                   Fragments& a) {
  constexpr Halves kEightOnes = 0x3a803a80u;  // 8 times what an integer 1 becomes: 2^-10
  static_assert(kBf16Integer == 0x1p-13f);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const Halves low = multiply<BFloat16>(scales[side], kLowBitsToInteger);
    const Halves high = multiply<BFloat16>(scales[side], kHighBitsToInteger);
    const Halves eight = multiply<BFloat16>(scales[side], kEightOnes);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int p = 0; p < 4; p += 2) {
        const std::uint32_t bits = words[2 * side + h] >> (4 * p);
        a[2 * h + p / 2][side] = multiply_subtract<BFloat16>(bits & 0x000f000fu, low, eight);
        a[2 * h + p / 2][side + 2] = multiply_subtract<BFloat16>(bits & 0x00f000f0u, high, eight);
      }
    }
  }
}

template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void decode_scaled(const std::uint32_t (&words)[TileFormat<F, T>::kWords],
                                     const RawScales& raw, int slab, RowState& rows, Fragments& a) {
  if constexpr (F == Format::int4 && S != ScaleMode::none && !Z && std::is_same_v<T, BFloat16>) {
    Halves scales[2];
    scale_halves<F, T>(raw, slab, rows.inverse, scales);
    int4_scaled(words, scales, a);
  } else {
    decode_words<F, S, Z, T>(words, raw, slab, rows, a);
    if constexpr (S != ScaleMode::none) scale_fragments<F, T>(raw, slab, rows.inverse, a);
  }
}

}  // namespace tessera::cuda
