// How likely a token is, relative to the most likely one, as a whole number: exp((logit - largest)
// / temperature) in units of 2^-43. Whole numbers add up to the same sum in every order. The drawn
// token is therefore the same on every device, however the vocabulary is cut into blocks.
//
// Equal bits everywhere need equal roundings: files that include this are compiled without
// contraction into fused multiply-adds.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "core/philox.h"

namespace tessera {

// A weight is at most 2^43, so that the sum over the longest row stays below 2^64.
inline constexpr std::uint64_t kLargestWeight = std::uint64_t{1} << 43;
inline constexpr std::int64_t kMostLogits = std::int64_t{1} << 20;

// Powers of 2 with this exponent or a lower one have weight 0.
inline constexpr float kLightest = -44.f;

// The factor that turns a difference of logits into an exponent of 2. It is limited to f32's range:
// beyond that, a temperature acts as 0 on every difference that f32 logits can have.
TESSERA_HOST_DEVICE inline float weight_scale(double temperature) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kMost = static_cast<double>(std::numeric_limits<float>::max());
  const double scale = kLog2E / temperature;
  return static_cast<float>(scale < kMost ? scale : kMost);
}

// 2^x on [0, 1] as a polynomial, good to 8.5e-8; exactly 1 at 0. The factors of x, x^2, ...
inline constexpr float kExp2Factor1 = 0x1.62e42cp-1f, kExp2Factor2 = 0x1.ebfd58p-3f,
                       kExp2Factor3 = 0x1.c68912p-5f, kExp2Factor4 = 0x1.3d0b8ep-7f,
                       kExp2Factor5 = 0x1.46d66ap-10f, kExp2Factor6 = 0x1.c5411ep-13f;

// w in [0, 1] in units of 2^-43, rounded to nearest even. Doubles from 512 to 1024 have this unit.
inline constexpr double kUnitBase = 512.0;
TESSERA_HOST_DEVICE inline std::uint64_t weight_units(float w) {
  return std::bit_cast<std::uint64_t>(static_cast<double>(w) + kUnitBase) -
         std::bit_cast<std::uint64_t>(kUnitBase);
}

// No logit is NaN, and none exceeds `largest`, which is finite. -inf has weight 0.
TESSERA_HOST_DEVICE inline std::uint64_t sample_weight(float logit, float largest, float scale) {
  const float exponent = (logit - largest) * scale;
  if (!(exponent > kLightest)) return 0;
  const float whole = floorf(exponent), part = exponent - whole;
  float power = kExp2Factor6 * part + kExp2Factor5;
  power = power * part + kExp2Factor4;
  power = power * part + kExp2Factor3;
  power = power * part + kExp2Factor2;
  power = power * part + kExp2Factor1;
  power = power * part + 1.f;
  // Times 2^whole: no result is below f32's normal range.
  const auto shift = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole)) << 23;
  return weight_units(std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + shift));
}

// The least weight that makes up `share` of the total; at least 1 and at most the total.
TESSERA_HOST_DEVICE inline std::uint64_t weight_share(std::uint64_t total, double share) {
  const auto wanted = static_cast<std::uint64_t>(ceil(static_cast<double>(total) * share));
  return wanted < 1 ? 1 : wanted > total ? total : wanted;
}

// The least weight that min_p accepts.
TESSERA_HOST_DEVICE inline std::uint64_t least_weight(double min_p) {
  return static_cast<std::uint64_t>(ceil(min_p * static_cast<double>(kLargestWeight)));
}

// Whether a draw's options are in their ranges (ops/sampling_table.cc), for a kernel that reads
// them.
TESSERA_HOST_DEVICE inline bool accepts_draw(double temperature, std::int64_t top_k, double top_p,
                                             double min_p) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return temperature >= 0 && temperature < kInfinite && top_k >= 0 && top_p > 0 && top_p <= 1 &&
         min_p >= 0 && min_p <= 1;
}

// floor(a * b / 2^64)
TESSERA_HOST_DEVICE inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & 0xffffffffu)) >> 32);
}

// The 53 random bits of a draw, at the top of the word. The drawn token is the first whose weight,
// added to those of lower ids, exceeds multiply_high(bits, total).
TESSERA_HOST_DEVICE inline std::uint64_t draw_bits(std::uint64_t seed, std::uint64_t draw) {
  constexpr std::uint32_t kSamplerStream = 0x5A3717E5u;  // separate from other uses of the seed
  const PhiloxWords words =
      philox(seed, {static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0,
                    kSamplerStream});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32) | words[0];
  return bits >> 11 << 11;
}

}  // namespace tessera
