// A matrix of 8 x 8 16-bit elements turned within a warp. Lane l holds elements 2 (l % 4) and the
// next one of row l / 4, before and after. (cuda::ptx has neither movmatrix nor stmatrix.)
#pragma once

#include <cstdint>

namespace tessera::cuda::tile {

__device__ inline std::uint32_t turn_8x8(std::uint32_t pair) {
  std::uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// Four such matrices into shared memory: `row` of lane l is where row l % 8 of matrix l / 8 goes,
// on a boundary of 16 bytes.
__device__ inline void store_8x8(void* row, const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// Four such matrices into shared memory, turned: `row` of lane l is where row l % 8 of what matrix
// l / 8 becomes goes, on a boundary of 16 bytes.
__device__ inline void store_turned(void* row, const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

}  // namespace tessera::cuda::tile
