// Elements in kernels: f32 from and to f16 and bf16, by the hardware's conversions. Rounding is to
// nearest, ties to even, with the same bits as core/half.h on the CPU (NaN payloads aside).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/half.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(Half x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float to_f32(BFloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}

template <typename T>
__device__ T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline Half from_f32<Half>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
__device__ inline BFloat16 from_f32<BFloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

// A vector whose dtype is known only at run time: weights and biases, which are small and cached.
// All threads take the same branch.
struct AnyFloats {
  const void* data;
  DType dtype;

  explicit AnyFloats(const Tensor& tensor) : data(tensor.data), dtype(tensor.dtype) {}
  __device__ bool given() const { return data != nullptr; }
  __device__ float operator[](std::int64_t i) const {
    if (dtype == DType::f32) return static_cast<const float*>(data)[i];
    if (dtype == DType::f16) return to_f32(static_cast<const Half*>(data)[i]);
    return to_f32(static_cast<const BFloat16*>(data)[i]);
  }
};

// i32 or i64, known at run time.
__device__ inline std::int64_t index_at(const void* data, DType dtype, std::int64_t i) {
  return dtype == DType::i32 ? static_cast<const std::int32_t*>(data)[i]
                             : static_cast<const std::int64_t*>(data)[i];
}

}  // namespace tessera::cuda
