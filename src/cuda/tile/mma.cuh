// The tensor cores of sm_80 and later, one warp at a time: D += A B for a tile of 16 x 8, 16 deep.
// (cuda::ptx does not have mma.sync.)
//
//        k  0 1 | 2 3 | 4 5 | 6 7 | 8 9 | .. | 14 15            n  0  1  ..  7
//   row g   a0 of lanes 4g .. 4g+3| a2 of the same       k 2t    b0 of lane 4n + t
//   g + 8   a1                    | a3                     2t+8  b1
//
//   g = lane / 4, t = lane % 4. Each register of A and B holds two neighbours along k, the lower
//   one in its low half. d0, d1 are row g, columns 2t and 2t + 1; d2, d3 the same of row g + 8.
#pragma once

#include <cstdint>

#include "core/half.h"

namespace tessera::cuda {

// The last argument only names the type of A and B.
__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2], Half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2], BFloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace tessera::cuda
