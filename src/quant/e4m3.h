// E4M3 ("fn": no infinities), the 8-bit float: sign, 4 exponent bits (bias 7), 3 mantissa bits;
// 0x7f and 0xff are NaN; the largest value is 448.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "quant/rounding.h"

namespace tessera {

inline constexpr float kE4M3Max = 448.f;
inline constexpr std::uint8_t kE4M3Largest = 0x7e;  // the code of 448

constexpr float e4m3_decode(std::uint8_t code) {
  const std::uint32_t exponent = (code >> 3) & 0xfu, mantissa = code & 7u;
  float magnitude;
  if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;  // subnormals
  } else if (exponent == 15 && mantissa == 7) {
    magnitude = std::bit_cast<float>(0x7fc00000u);  // NaN
  } else {
    magnitude = std::bit_cast<float>(((exponent + (127 - 7)) << 23) | (mantissa << 20));
  }
  return code & 0x80u ? -magnitude : magnitude;
}

inline constexpr std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = e4m3_decode(static_cast<std::uint8_t>(code));
  }
  return values;
}();

// Rounds to nearest, ties to the even code; beyond 448 saturates; NaN gives NaN.
constexpr std::uint8_t e4m3_encode(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint8_t sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);  // from 448 on
  if (magnitude < 0x3c800000u) {  // below 2^-6: a subnormal, in units of 2^-9
    // Adding 2^14 aligns the unit with the last mantissa bit of the sum, so that the FPU rounds.
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(aligned) & 0xfu));
  }
  const std::uint32_t rebased = magnitude - ((127u - 7u) << 23);
  const std::uint32_t rounded = (rebased + 0x7ffffu + ((rebased >> 20) & 1u)) >> 20;
  return static_cast<std::uint8_t>(sign | rounded);
}

// The value of e4m3_encode(x), for x that is not NaN; without branches.
constexpr float e4m3_round(float x) {
  const float magnitude = clamped(magnitude_of(x), 0.f, kE4M3Max);
  return with_sign_of(round_to_mantissa<3>(magnitude, 0x1p-6f), x);
}

}  // namespace tessera
