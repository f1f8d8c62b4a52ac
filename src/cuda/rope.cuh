// The turn of a rotary pair, for kernels.
#pragma once

#include <cstdint>

namespace tessera::cuda {

struct CosSin {
  float cos, sin;
};

// As on the CPU, the angle is formed and brought into [-pi, pi] in float64. sincosf then sees it
// rounded to f32; what the rounding took is put back by a first-order step, which leaves an error
// of 10^-14.
__device__ inline CosSin cos_sin(std::int64_t position, float inv_freq) {
  constexpr double kTurn = 6.283185307179586;  // 2 pi
  const double angle = static_cast<double>(position) * static_cast<double>(inv_freq);
  const double reduced = fma(-rint(angle / kTurn), kTurn, angle);
  const float coarse = static_cast<float>(reduced);
  const float rest = static_cast<float>(reduced - static_cast<double>(coarse));
  float c, s;
  sincosf(coarse, &s, &c);
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
