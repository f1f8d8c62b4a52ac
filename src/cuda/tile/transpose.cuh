// A matrix of 8 x 8 16-bit elements transposed within a warp. Lane l holds elements 2 (l % 4) and
// 2 (l % 4) + 1 of row l / 4, before and after. (cuda::ptx has neither movmatrix nor stmatrix.)
#pragma once

#include <cstdint>

namespace tessera::cuda::tile {

__device__ inline std::uint32_t transpose_8x8(std::uint32_t pair) {
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

// Stores four such matrices to shared memory: row l % 8 of matrix l / 8 goes to `row` of lane l,
// which is aligned to 16 bytes.
__device__ inline void store_8x8(void* row, const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// Stores four such matrices transposed: row l % 8 of the transposed matrix l / 8 goes to `row` of
// lane l, which is aligned to 16 bytes.
__device__ inline void store_transposed(void* row, const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

}  // namespace tessera::cuda::tile
