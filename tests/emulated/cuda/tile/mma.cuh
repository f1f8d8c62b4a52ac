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
    double rows[16][16], columns[8][16];  // unpacked once, not for each product
    for (int i = 0; i < 32; ++i) {
      const Lane& lane = *static_cast<const Lane*>(all[i]);
      for (int side = 0; side < 2; ++side) {
        for (int part = 0; part < 2; ++part) {
          const int k = 8 * side + i % 4 * 2 + part;
          rows[i / 4][k] = Lane::part(lane.a[2 * side], part);
          rows[i / 4 + 8][k] = Lane::part(lane.a[2 * side + 1], part);
          columns[i / 4][k] = Lane::part(lane.b[side], part);
        }
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int n = 0; n < 8; ++n) {
        const double *x = rows[row], *y = columns[n];
        double sum = 0;
        for (int k = 0; k < 16; ++k) sum += x[k] * y[k];
        const Lane& lane = *static_cast<const Lane*>(all[row % 8 * 4 + n / 2]);
        float& out = lane.d[row / 8 * 2 + n % 2];
        out = static_cast<float>(out + sum);
      }
    }
  });
}

}  // namespace tessera::cuda
