// FP4 E2M1: sign, 2 exponent bits (bias 1), 1 mantissa bit. Sixteen codes, no NaN, no infinity; the
// largest value is 6. A code is even where its mantissa bit is 0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "quant/rounding.h"

namespace tessera {

inline constexpr float kE2M1Max = 6.f;

inline constexpr std::array<float, 16> kE2M1Values = {
    0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,   // codes 0 .. 7
    -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f,  // codes 8 .. 15: the sign bit is the highest
};

constexpr float e2m1_decode(std::uint8_t code) { return kE2M1Values[code & 15u]; }

// The nearest value, ties to the even code; beyond 6 saturates. x is not NaN.
constexpr float e2m1_round(float x) {
  const float magnitude = clamped(magnitude_of(x), 0.f, kE2M1Max);
  return with_sign_of(round_to_mantissa<1>(magnitude, 1.f), x);
}

// The code of e2m1_round(x).
constexpr std::uint8_t e2m1_encode(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(e2m1_round(x));
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // From 1 on, exponent and first mantissa bit of the f32 are the code's, but for the bias; below
  // there are only 0 and 0.5 (whose f32 exponent is 126).
  const std::uint32_t code =
      magnitude >= 0x3f800000u ? (magnitude >> 22) - (126u << 1) : magnitude >> 29;
  return static_cast<std::uint8_t>((bits >> 28 & 8u) | code);
}

}  // namespace tessera
