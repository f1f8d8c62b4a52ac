// The turn of a rotary pair, for kernels.
#pragma once

#include <cstdint>

namespace tessera::cuda {

struct CosSin {
  float cos, sin;
};

// As on the CPU, the angle is formed and brought into half a turn either way in float64. sincospif
// then sees it rounded to f32; what the rounding took is put back by a first-order step, which
// leaves an error of 10^-16 for each radian of the angle. In parts of a turn: without a division,
// and without sincosf's long way for large angles.
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

struct TurnedPair {
  float first, second;
};

// Every step rounds as written, whatever surrounds the call: keys that attention turns as it reads
// them are, in f32, the bits that rotary() would have stored.
__device__ inline TurnedPair turned(float first, float second, CosSin turn) {
  return {fmaf(-second, turn.sin, __fmul_rn(first, turn.cos)),
          fmaf(first, turn.sin, __fmul_rn(second, turn.cos))};
}

}  // namespace tessera::cuda
