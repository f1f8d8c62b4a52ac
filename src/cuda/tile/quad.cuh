// Operations among the four lanes that share a row of a matrix product's fragment.
#pragma once

#include <cstdint>

namespace tessera::cuda::tile {

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Lane c of a quad has word c of four groups, and gets all words of group c: 4 bytes in each of
// four places become 16 adjacent bytes.
__device__ inline uint4 quad_transpose(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                       std::uint32_t d) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  // Lanes 0 and 1, and 2 and 3, exchange: then a lane has words (0, 1) or (2, 3) of two groups.
  const std::uint32_t ab = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  const std::uint32_t cd = __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
  const uint2 first = odd ? make_uint2(ab, b) : make_uint2(a, ab);   // of group 1 or 0
  const uint2 second = odd ? make_uint2(cd, d) : make_uint2(c, cd);  // of group 3 or 2
  // Lanes 0 and 2, and 1 and 3.
  const uint2 give = high ? first : second;
  const std::uint32_t x = __shfl_xor_sync(0xffffffffu, give.x, 2);
  const std::uint32_t y = __shfl_xor_sync(0xffffffffu, give.y, 2);
  return high ? make_uint4(x, y, second.x, second.y) : make_uint4(first.x, first.y, x, y);
}

}  // namespace tessera::cuda::tile
