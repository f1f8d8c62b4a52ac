// The tensor cores over signed bytes, one warp at a time: D += A B for a tile of 16 x 8, 32 deep,
// in 32-bit integers. (cuda::ptx does not have mma.sync.)
//
//        k  0 .. 3 | .. | 12 .. 15 | 16 .. 31            n  0  1  ..  7
//   row g   a0 of lanes 4g .. 4g+3 | a2 of the same  k 4t    b0 of lane 4n + t
//   g + 8   a1                     | a3                4t+16 b1
//
//   g = lane / 4, t = lane % 4. Each register of A and B holds four neighbours along k, the first
//   one in its lowest byte. D is as in mma.cuh.
#pragma once

#include <cstdint>

namespace tessera::cuda {

__device__ inline void mma_16x8x32(int (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tessera::cuda
