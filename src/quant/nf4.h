// NF4, "normal float" (Dettmers et al., QLoRA, 2023): codes of a table in blocks of 64, an f32
// scale for each. The table holds sixteen quantiles of the normal distribution, scaled so that 0
// and both ends, -1 and 1, are among them; it is bitsandbytes'.
//
//   value = table * scale
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

// Of all f32, exactly those above kNf4Bounds[i] are to be coded as i + 1 or higher: nearest value,
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

constexpr std::uint8_t nf4_encode(float x) {
  int code = 0;
  for (const float bound : kNf4Bounds) code += x > bound;
  return static_cast<std::uint8_t>(code);
}

// The value of nf4_encode(x); without branches.
constexpr float nf4_round(float x) {
  float value = kNf4Values[0];
  for (std::size_t i = 0; i < kNf4Bounds.size(); ++i) {
    value = x > kNf4Bounds[i] ? kNf4Values[i + 1] : value;
  }
  return value;
}

namespace quant {

void nf4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void nf4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out);

}  // namespace quant
}  // namespace tessera
