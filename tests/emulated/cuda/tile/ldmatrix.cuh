// Replaces src/cuda/tile/ldmatrix.cuh.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulated/simt.h"

namespace tessera::cuda {
namespace emulated_ldmatrix {

struct Lane {
  const void* row;
  std::uint32_t* to;
  bool transposed;
};

inline void step(emulated::Payloads lanes) {
  const auto lane = [&](int i) { return static_cast<const Lane*>(lanes[i]); };
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t elements[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(elements[r], lane(8 * matrix + r)->row, 16);
    for (int l = 0; l < emulated::kWarpSize; ++l) {
      const int a = l / 4, b = 2 * (l % 4);
      const bool is_transposed = lane(l)->transposed;
      const std::uint32_t low = is_transposed ? elements[b][a] : elements[a][b];
      const std::uint32_t high = is_transposed ? elements[b + 1][a] : elements[a][b + 1];
      lane(l)->to[matrix] = low | high << 16;
    }
  }
}

}  // namespace emulated_ldmatrix

inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  emulated_ldmatrix::Lane mine{row, to, false};
  emulated::warp_together(~0u, &mine, emulated_ldmatrix::step);
}

inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  emulated_ldmatrix::Lane mine{row, to, true};
  emulated::warp_together(~0u, &mine, emulated_ldmatrix::step);
}

}  // namespace tessera::cuda
