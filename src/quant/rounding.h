// Rounding to nearest, ties to even, without branches, so that loops over it become SIMD code and a
// GPU repeats it bit for bit.
//
// The trick: where a number is so large that its last mantissa bit is worth one step, adding it
// makes the FPU round to a multiple of the step, and subtracting it again leaves that multiple.
// 1.5 * 2^23 is such a number for a step of 1, with room below it for negative numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

inline constexpr float kIntegerShift = 0x1.8p23f;

constexpr float magnitude_of(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
}

constexpr float with_sign_of(float magnitude, float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) |
                              (std::bit_cast<std::uint32_t>(x) & 0x80000000u));
}

constexpr float clamped(float x, float low, float high) {
  const float above = x < low ? low : x;
  return above > high ? high : above;
}

constexpr int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// The whole number `code` nearest to x + zero, of those in [low, high]; the even one
// of two equally near. Rounds once: the sum of x and zero is not rounded before. |zero| and |low|,
// |high| < 2^21.
constexpr float round_to_code(float x, float zero, float low, float high) {
  const float within = clamped(x, low - zero, high - zero);
  return (within + (kIntegerShift + zero)) - kIntegerShift;
}

// A magnitude rounded to kBits mantissa bits after the leading one; below smallest_normal, a power
// of two, the steps stay as wide as they are there.
template <int kBits>
constexpr float round_to_mantissa(float magnitude, float smallest_normal) {
  const float power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) & 0x7f800000u);
  const float binade = power < smallest_normal ? smallest_normal : power;
  const float shift = binade * (kIntegerShift / (1 << kBits));  // the step is binade / 2^kBits
  return (magnitude + shift) - shift;
}

}  // namespace tessera
