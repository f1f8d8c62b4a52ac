// f16 and bf16 on the host: single values and arrays. tessera/convert.h converts tensors on any
// device. Conversions from f32 round to nearest, ties to even. What exceeds f16's range becomes
// infinity; NaN stays NaN.
//
// Threads: any, on arrays that nobody else writes.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// The element type of DType::f16.
struct Half {
  std::uint16_t bits = 0;
};
// The element type of DType::bf16.
struct BFloat16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(float x) { return x; }

constexpr float to_float(Half h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t f32_exponent = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (f32_exponent << 23) | (mantissa << 13));
}

constexpr float to_float(BFloat16 b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16);
}

constexpr BFloat16 to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN: keep it quiet, keep its sign
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  const std::uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((bits + round) >> 16)};
}

constexpr Half to_f16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};  // NaN
  // 65520 is half-way between the largest f16 and the next power of two: from there on, infinity.
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal, in units of 2^-24
    // Adding 0.5 aligns the unit with the last mantissa bit, so that the FPU rounds for us.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t units = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
    return {static_cast<std::uint16_t>(sign | units)};
  }
  const std::uint32_t rebased = magnitude - ((127u - 15u) << 23);
  const std::uint32_t rounded = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  return {static_cast<std::uint16_t>(sign | rounded)};
}

// To the element type that a template names.
template <typename T>
constexpr T from_float(float x);
template <>
constexpr float from_float<float>(float x) {
  return x;
}
template <>
constexpr Half from_float<Half>(float x) {
  return to_f16(x);
}
template <>
constexpr BFloat16 from_float<BFloat16>(float x) {
  return to_bf16(x);
}

// Arrays, element by element.
std::vector<float> to_float(std::span<const Half> values);
std::vector<float> to_float(std::span<const BFloat16> values);
std::vector<Half> to_f16(std::span<const float> values);
std::vector<BFloat16> to_bf16(std::span<const float> values);

}  // namespace tessera
