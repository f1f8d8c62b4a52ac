// NF4, "normal float" (Dettmers et al., QLoRA, 2023): codes of a table in blocks of 64, an f32
// scale for each. The table holds sixteen quantiles of the normal distribution, scaled so that 0
// and both ends, -1 and 1, are among them; it is the same as in bitsandbytes.
//
//   value = table * scale
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "quant/block.h"
#include "quant/nibbles.h"
#include "tessera/quant.h"

namespace tessera {

inline constexpr std::array<float, 16> kNf4Values = {
    -1.f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.f,
};

// Exactly the f32 numbers above kNf4Bounds[i] are coded as i + 1 or higher: nearest value,
// ties to the even code.
inline constexpr std::array<float, 15> kNf4Bounds = [] {
  std::array<float, 15> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double middle = (double{kNf4Values[i]} + double{kNf4Values[i + 1]}) / 2;  // exact
    float bound = static_cast<float>(middle);
    // The largest f32 that stays below: the middle itself belongs to the lower code if that is the
    // even one. (No middle is 0, so that the next f32 down is a step of the bits.)
    const bool middle_stays = i % 2 == 0;
    if (double{bound} > middle || (double{bound} == middle && !middle_stays)) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(bound);
      bound = std::bit_cast<float>(bound > 0 ? bits - 1 : bits + 1);
    }
    bounds[i] = bound;
  }
  return bounds;
}();

// The same bounds one by one: kernels can use single numbers, but not arrays in the host's memory.
template <std::size_t i>
inline constexpr float kNf4Bound = kNf4Bounds[i];
template <std::size_t i>
inline constexpr float kNf4Value = kNf4Values[i];

constexpr std::uint8_t nf4_encode(float x) {
  return [x]<std::size_t... i>(std::index_sequence<i...>) {
    return static_cast<std::uint8_t>((int{x > kNf4Bound<i>} + ...));
  }
  (std::make_index_sequence<15>());
}

// The value of nf4_encode(x); without branches.
constexpr float nf4_round(float x) {
  float value = kNf4Value<0>;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((value = x > kNf4Bound<i> ? kNf4Value<i + 1> : value), ...);
  }
  (std::make_index_sequence<15>());
  return value;
}

namespace quant {

template <typename Values>
TESSERA_HOST_DEVICE float nf4_scale(const Values& x, ScaleSearch search) {
  const float from_max = usable_scale(largest_magnitude(x), 1.f);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, 1.f, around_largest(),
                      [](float ratio) { return nf4_round(ratio); });
}

TESSERA_HOST_DEVICE inline void nf4_encode_block(const Weight& weight, std::int64_t row,
                                                 const Piece& piece, const float* x,
                                                 ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const float scale = nf4_scale(piece.of(x), search);
  row_of<float>(weight.scales, row)[piece.block] = scale;
  store_nibbles<NibbleOrder::high_first>(codes, piece.begin, piece.end,
                                         [=](std::int64_t k) { return nf4_encode(x[k] / scale); });
}

void nf4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void nf4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out);

}  // namespace quant
}  // namespace tessera
