// Two f32 rounded to 16 bits and put into one register, as mma.sync takes them: the first in the
// low half. One instruction. And back, which is exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "core/half.h"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {

// The last argument only names the type.
__device__ inline std::uint32_t pack(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline std::uint32_t pack(float low, float high, Half) {
  return pack(low, high, __half());
}
__device__ inline std::uint32_t pack(float low, float high, BFloat16) {
  return pack(low, high, __nv_bfloat16());
}

// The two numbers of a register in f32.
__device__ inline float2 unpacked(std::uint32_t x, Half) {
  return {to_f32(Half{static_cast<std::uint16_t>(x)}),
          to_f32(Half{static_cast<std::uint16_t>(x >> 16)})};
}
__device__ inline float2 unpacked(std::uint32_t x, BFloat16) {
  return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
}

}  // namespace tessera::cuda
