// E8M0, the block scale of the OCP microscaling formats: an exponent alone (bias 127), so a power
// of two from 2^-127 to 2^127. Code 255 is NaN; there is no zero and no sign.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

inline constexpr std::uint8_t kE8M0NaN = 255;

constexpr float e8m0_decode(std::uint8_t code) {
  if (code == kE8M0NaN) return std::bit_cast<float>(0x7fc00000u);
  // The exponent field of an f32 has the same bias; 2^-127 alone is a subnormal there.
  const std::uint32_t bits = code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23;
  return std::bit_cast<float>(bits);
}

}  // namespace tessera
