// The scales and zero points that a lane needs for a slab: those of rows g and g + 8, which are
// adjacent (tile_layout.h). Loading is separate from decoding, so that loads can run ahead.
#pragma once

#include <cstdint>

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/tile/element.cuh"
#include "tessera/weight.h"

namespace tessera::cuda {

__device__ inline void store_words(const uint4& vector, std::uint32_t* words) {
  words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
}

struct TileScales {
  const void* scales;
  const std::uint8_t* zeros;
  int shift;  // log2 of the blocks of a slab (ScaleMode::fragments) or of the slabs of a block
              // (sums)
};

inline ScaleMode scale_mode(const Weight& weight) {
  if (weight.group == 0) return ScaleMode::none;
  return weight.group < kSlab ? ScaleMode::fragments : ScaleMode::sums;
}

inline TileScales tile_scales(const Weight& weight) {
  int shift = 0;
  for (std::int64_t group = weight.group; group > kSlab; group /= 2) ++shift;
  for (std::int64_t group = weight.group; group > 0 && group < kSlab; group *= 2) ++shift;
  return {.scales = weight.scales.data,
          .zeros = weight.zeros.ptr<const std::uint8_t>(),
          .shift = shift};
}

// As loaded, for a pair of slabs: [slab][rows g and g + 8]. Bytes are in one word, f32 in four.
struct RawScales {
  std::uint32_t words[4];
  std::uint32_t zeros;
};

// Loads the scales of pair number `pair`, counted through all tiles. Z: there are zero points.
template <Format F, ScaleMode S, bool Z>
__device__ inline void load_scales(const TileScales& from, int pair, int lane, RawScales& raw) {
  if constexpr (F == Format::nvfp4) {
    raw.words[0] = static_cast<const std::uint32_t*>(from.scales)[pair * 32 + lane];
  } else if constexpr (F == Format::mxfp4) {
    raw.words[0] = static_cast<const std::uint32_t*>(from.scales)[pair * 16 + lane / 2];
  } else if constexpr (S == ScaleMode::fragments) {
    const int at = ((pair * 8 + lane / 4) << from.shift) + (lane % 4 >> (2 - from.shift));
    store_words(static_cast<const uint4*>(from.scales)[at], raw.words);
    if constexpr (Z) raw.zeros = reinterpret_cast<const std::uint32_t*>(from.zeros)[at];
  } else if constexpr (S == ScaleMode::sums) {
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      const int at = ((pair * 2 + slab) >> from.shift) * 8 + lane / 4;
      const uint2 both = static_cast<const uint2*>(from.scales)[at];
      raw.words[2 * slab] = both.x, raw.words[2 * slab + 1] = both.y;
      if constexpr (Z) {
        const std::uint32_t zeros = reinterpret_cast<const std::uint16_t*>(from.zeros)[at];
        raw.zeros = slab == 0 ? zeros : raw.zeros | zeros << 16;
      }
    }
  }
}

// E8M0: an exponent, whose smallest value is f32's largest subnormal power. Unlike e8m0_decode(),
// it has no NaN: the row's scale covers that case.
__device__ inline float e8m0_value(std::uint32_t code) {
  return std::bit_cast<float>(code == 0 ? 0x00400000u : code << 23);
}

// In f32, of rows g and g + 8 in one slab of the pair.
template <Format F>
__device__ inline void scale_values(const RawScales& raw, int slab, float (&values)[2]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    values[side] = F == Format::mxfp4 ? e8m0_value(raw.words[0] >> (16 * slab + 8 * side) & 255u)
                                      : std::bit_cast<float>(raw.words[2 * slab + side]);
  }
}

// 1 / x for a power of two; anything for NaN, because the sums are multiplied with that NaN in the
// end.
__device__ inline float inverse_power(float x) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<std::uint32_t>(x));
}

// For fragments: each scale twice, as T, times the factor that E2M1 fragments lack, but for 2^-8.
// `inverse` is 1 / row_scale of each row, a power of two, which brings scales of any size into T's
// range.
template <Format F, typename T>
__device__ inline void scale_halves(const RawScales& raw, int slab, const float (&inverse)[2],
                                    Halves (&halves)[2]) {
  if constexpr (F == Format::nvfp4) {
    // Converts both at once by their bits, like e4m3_halves().
    const std::uint32_t x = __byte_perm(raw.words[0], 0, slab == 0 ? 0x1404 : 0x3424);
    Halves both;
    if constexpr (std::is_same_v<T, Half>) {
      constexpr Halves kGain = 0x74007400u;  // 2^14: from 2^-8 of the scale to 2^6
      both = multiply<T>((x & 0x80008000u) | (x >> 1 & 0x3f803f80u), kGain);
    } else {
      constexpr Halves kBack = 0x7b807b80u, kGain = 0x7a807a80u;  // 2^120, 2^118
      both = multiply<T>(multiply<T>((x & 0x80008000u) | (x >> 4 & 0x07f007f0u), kBack), kGain);
    }
    halves[0] = __byte_perm(both, 0, 0x1010);
    halves[1] = __byte_perm(both, 0, 0x3232);
  } else {
    constexpr float kGain = F != Format::mxfp4 ? 1.f : std::is_same_v<T, Half> ? 0x1p6f : 0x1p118f;
    float values[2];
    scale_values<F>(raw, slab, values);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float scale = values[side] * inverse[side] * kGain;
      halves[side] = halves_of<T>(scale, scale);
    }
  }
}

// From two zero points as loaded, of rows g and g + 8: the low 16 bits of raw.
template <Format F, typename T>
__device__ inline void use_zeros(std::uint32_t raw, DecodeState& state) {
  if constexpr (F == Format::int4) {
    state.int4[0] = int4_offsets<T>(raw & 255u);
    state.int4[1] = int4_offsets<T>(raw >> 8 & 255u);
  } else if constexpr (F == Format::int8) {
    state.zeros[0] = static_cast<std::int8_t>(raw);
    state.zeros[1] = static_cast<std::int8_t>(raw >> 8);
  }
}

// If there are none, the middle of the codes.
inline constexpr std::uint32_t kNoInt4Zeros = 8 << 8 | 8;

// ---- a lane's share -----------------------------------------------------------------------------

// The state of rows g and g + 8 of a tile.
struct RowState {
  float inverse[2] = {1, 1};  // of row_scales
  DecodeState decode{};       // with the zero points of the rows, if they have them
};

// The state before any tile has been started.
template <Format F, typename T>
__device__ inline RowState no_rows(const Halves* nf4_table, int lane) {
  RowState rows{.decode = {.nf4_table = nf4_table + lane}};
  use_zeros<F, T>(F == Format::int4 ? kNoInt4Zeros : 0, rows.decode);
  return rows;
}

// row_scales: the tile's.
template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void start_tile(const TileScales& scales, const float* row_scales, int tile,
                                  int lane, RowState& rows) {
  if constexpr (S != ScaleMode::none && F != Format::nvfp4) {
    rows.inverse[0] = inverse_power(row_scales[lane / 4]);
    rows.inverse[1] = inverse_power(row_scales[lane / 4 + 8]);
  } else if constexpr (Z) {
    const auto* zeros = reinterpret_cast<const std::uint16_t*>(scales.zeros);
    use_zeros<F, T>(zeros[tile * 8 + lane / 4], rows.decode);
  }
}

// Decodes a lane's codes of one slab, without block scales.
template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void decode_words(const std::uint32_t (&words)[TileFormat<F, T>::kWords],
                                    const RawScales& raw, int slab, RowState& rows, Fragments& a) {
  if constexpr (Z && S != ScaleMode::none) use_zeros<F, T>(raw.zeros >> (16 * slab), rows.decode);
  TileFormat<F, T>::decode(words, rows.decode, a);
}

// Multiplies each fragment with its block's scale.
template <Format F, typename T>
__device__ inline void scale_fragments(const RawScales& raw, int slab, const float (&inverse)[2],
                                       Fragments& a) {
  Halves factors[2];
  scale_halves<F, T>(raw, slab, inverse, factors);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[j][r] = multiply<T>(a[j][r], factors[r % 2]);
  }
}

// ---- every format -------------------------------------------------------------------------------

// Calls fn.operator()<format, scale mode, zero points>() for the kind of a weight: the one list of
// all kinds.
template <typename Fn>
void with_tile_kind(Format format, ScaleMode mode, bool zeros, Fn&& fn) {
  const auto call = [&]<Format F, ScaleMode S>() {
    if constexpr (F == Format::int4 || F == Format::int8) {
      if (zeros) return fn.template operator()<F, S, true>();
    }
    fn.template operator()<F, S, false>();
  };
  switch (format) {
    case Format::dense:
      return call.template operator()<Format::dense, ScaleMode::none>();
    case Format::nvfp4:
      return call.template operator()<Format::nvfp4, ScaleMode::fragments>();
    case Format::mxfp4:
      return call.template operator()<Format::mxfp4, ScaleMode::fragments>();
    case Format::nf4:
      return call.template operator()<Format::nf4, ScaleMode::sums>();
    case Format::int4:
      if (mode == ScaleMode::none) return call.template operator()<Format::int4, ScaleMode::none>();
      if (mode == ScaleMode::sums) return call.template operator()<Format::int4, ScaleMode::sums>();
      return call.template operator()<Format::int4, ScaleMode::fragments>();
    case Format::int8:
      if (mode == ScaleMode::none) return call.template operator()<Format::int8, ScaleMode::none>();
      return call.template operator()<Format::int8, ScaleMode::sums>();
    case Format::fp8:
      return call.template operator()<Format::fp8, ScaleMode::none>();
  }
}

// Dense weights have no tiles. Rare kinds run elsewhere (takes_panels()): kernels that load with
// the copy engine have no instances for them.
template <Format F, ScaleMode S, bool Z>
inline constexpr bool kHasPanels = F == Format::int8   ? S == ScaleMode::none && !Z
                                   : F == Format::int4 ? S != ScaleMode::none
                                                       : F != Format::dense;

// The same for the kinds with panels.
template <typename Fn>
void with_panel_kind(Format format, ScaleMode mode, bool zeros, Fn&& fn) {
  with_tile_kind(format, mode, zeros, [&]<Format F, ScaleMode S, bool Z>() {
    if constexpr (kHasPanels<F, S, Z>) fn.template operator()<F, S, Z>();
  });
}

}  // namespace tessera::cuda
