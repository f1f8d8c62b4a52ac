// ldmatrix: four 8x8 matrices of 16-bit elements from shared memory to the registers of a warp, in
// the layout of mma.sync's operands. (cuda::ptx does not have it.)
//
//   lane l names a row of 8 elements (16 bytes, aligned): lanes 0..7 those of matrix 0, lanes 8..15
//   those of matrix 1, and so on. Lane l receives of each matrix the elements [l / 4][2 (l % 4)]
//   and the one to its right; transposed, the elements [2 (l % 4)][l / 4] and the one below.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// All lanes of a warp call it. Matrix i goes to to[i].
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

}  // namespace tessera::cuda
