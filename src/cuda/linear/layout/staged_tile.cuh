// One pair of slabs of a tile, copied to shared memory unchanged: a lane's words and scales.
#pragma once

#include <cstdint>

#include "cuda/linear/layout/scales.cuh"

namespace tessera::cuda {

template <int kWords>
__device__ inline void load_staged_words(const char* codes, int slab, int lane,
                                         std::uint32_t (&words)[kWords]) {
  constexpr int kVectors = kWords / 4;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    store_words(reinterpret_cast<const uint4*>(codes)[(slab * kVectors + i) * 32 + lane],
                words + 4 * i);
  }
}

// shift: TileScales::shift. zeros: where zero points would be, if there are none.
template <Format F, ScaleMode S, bool Z>
__device__ inline void load_staged_scales(const char* scales, const char* zeros, int shift,
                                          int lane, RawScales& raw) {
  if constexpr (S != ScaleMode::none) {
    const auto* there = Z ? reinterpret_cast<const std::uint8_t*>(zeros) : nullptr;
    load_scales<F, S, Z>({.scales = scales, .zeros = there, .shift = shift}, 0, lane, raw);
  }
}

}  // namespace tessera::cuda
