// The rotation of a rotary pair, for kernels.
#pragma once

#include <cstdint>

namespace tessera::cuda {

struct CosSin {
  float cos, sin;
};

// As on the CPU, the angle is computed in float64 and reduced to half a turn either way. sincospif
// then takes it rounded to f32. A first-order step corrects that rounding, which leaves an error of
// 10^-16 for each radian of the angle. Angles are in turns, so neither a division nor sincosf's
// slow path for large angles is needed.
__device__ inline CosSin cos_sin(std::int64_t position, float inv_freq) {
  constexpr double kTurns = 0.15915494309189535;  // 1 / (2 pi)
  constexpr float kPi = 3.14159265f;
  const double turns = static_cast<double>(position) * static_cast<double>(inv_freq) * kTurns;
  const double half_turns = 2 * (turns - rint(turns));
  const float coarse = static_cast<float>(half_turns);
  const float rest = kPi * static_cast<float>(half_turns - static_cast<double>(coarse));
  float c, s;
  sincospif(coarse, &s, &c);
  return {c - rest * s, s + rest * c};
}

struct RotatedPair {
  float first, second;
};

// Every step rounds as written, whatever the compiler does around the call: in f32, keys that
// attention rotates as it reads them have the bits that rotary() would have stored.
__device__ inline RotatedPair rotated(float first, float second, CosSin rotation) {
  return {fmaf(-second, rotation.sin, __fmul_rn(first, rotation.cos)),
          fmaf(first, rotation.sin, __fmul_rn(second, rotation.cos))};
}

}  // namespace tessera::cuda
