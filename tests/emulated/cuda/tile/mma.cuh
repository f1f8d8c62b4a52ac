// Replaces src/cuda/tile/mma.cuh: the last lane of the warp to arrive multiplies for all.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "emulated/simt.h"

namespace tessera::cuda {

template <typename T>
struct MmaLane {
  float* d;
  const std::uint32_t *a, *b;

  // Element i of two in a register.
  static float part(std::uint32_t pair, int i) {
    T value;
    value.bits = static_cast<std::uint16_t>(i == 0 ? pair : pair >> 16);
    return to_float(value);
  }
};

template <typename T>
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], T) {
  MmaLane<T> mine{d, a, b};
  emulated::warp_together(~0u, &mine, [](emulated::Payloads all) {
    using Lane = MmaLane<T>;
    const auto lane = [&](int i) { return *static_cast<Lane*>(all[i]); };
    for (int row = 0; row < 16; ++row) {
      for (int n = 0; n < 8; ++n) {
        double sum = 0;
        for (int k = 0; k < 16; ++k) {
          const int t = k % 8 / 2, side = k / 8;
          sum +=
              static_cast<double>(Lane::part(lane(row % 8 * 4 + t).a[row / 8 + 2 * side], k % 2)) *
              Lane::part(lane(n * 4 + t).b[side], k % 2);
        }
        float& out = lane(row % 8 * 4 + n / 2).d[row / 8 * 2 + n % 2];
        out = static_cast<float>(out + sum);
      }
    }
  });
}

}  // namespace tessera::cuda
