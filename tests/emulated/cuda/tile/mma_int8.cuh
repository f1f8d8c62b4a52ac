// Replaces src/cuda/tile/mma_int8.cuh: the last lane of the warp to arrive multiplies for all.
#pragma once

#include <cstdint>

#include "emulated/simt.h"

namespace tessera::cuda {

struct Int8MmaLane {
  int* d;
  const std::uint32_t *a, *b;

  static int byte(std::uint32_t word, int i) { return static_cast<std::int8_t>(word >> (8 * i)); }
};

inline void mma_16x8x32(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  Int8MmaLane mine{d, a, b};
  emulated::warp_together(~0u, &mine, [](emulated::Payloads all) {
    using Lane = Int8MmaLane;
    const auto lane = [&](int i) { return *static_cast<Lane*>(all[i]); };
    for (int row = 0; row < 16; ++row) {
      for (int n = 0; n < 8; ++n) {
        int sum = 0;
        for (int k = 0; k < 32; ++k) {
          const int t = k % 16 / 4, side = k / 16;
          sum += Lane::byte(lane(row % 8 * 4 + t).a[row / 8 + 2 * side], k % 4) *
                 Lane::byte(lane(n * 4 + t).b[side], k % 4);
        }
        lane(row % 8 * 4 + n / 2).d[row / 8 * 2 + n % 2] += sum;
      }
    }
  });
}

}  // namespace tessera::cuda
