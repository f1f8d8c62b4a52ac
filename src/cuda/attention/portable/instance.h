// From a call to the instance of a portable tensor core kernel that runs it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/half.h"
#include "cuda/attention/call.h"
#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda {

// Calls fn(T(), std::integral_constant<int, dim>) with the head dim that kernels are compiled for.
template <typename F>
void with_tensor_core_types(const AttentionCall& call, F&& fn) {
  const auto with_dim = [&](auto type) {
    if (call.dim <= 64) return fn(type, std::integral_constant<int, 64>());
    if (call.dim <= 80) return fn(type, std::integral_constant<int, 80>());
    if (call.dim <= 96) return fn(type, std::integral_constant<int, 96>());
    if (call.dim <= 128) return fn(type, std::integral_constant<int, 128>());
    return fn(type, std::integral_constant<int, 256>());
  };
  if (call.dtype == DType::f16) return with_dim(Half());
  return with_dim(BFloat16());
}

// Limits the mask's numbers to the largest position, so that they fit ints. No two positions lie
// farther apart.
inline void keep_within_positions(MaskView& mask) {
  for (std::int64_t* number : {&mask.left, &mask.right, &mask.n_sink, &mask.block}) {
    *number = std::min<std::int64_t>(*number, kMostPositions);
  }
}

}  // namespace tessera::cuda
