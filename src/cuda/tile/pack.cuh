// Two f32 rounded to 16 bits and put into one register, as mma.sync takes them: the first in the
// low half. One instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "core/half.h"

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

}  // namespace tessera::cuda
