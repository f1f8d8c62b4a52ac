// Included by every instance file of the Hopper kernel for gradients.
#pragma once

#include <type_traits>

#include "core/half.h"
#include "cuda/attention/backward/hopper/hopper.cuh"

namespace tessera::cuda::backward {

template <typename T, int dim>
void launch_hopper(const Launch& launch, const HopperGradients& gradients) {
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  using B = HopperBlock<Element, dim>;
  launch(sum_gradients<B>,
         {.blocks = std::int64_t{gradients.all_heads} * gradients.key_tiles,
          .threads = dim3(B::kThreads),
          .shared_bytes = B::kSharedBytes},
         gradients);
}

}  // namespace tessera::cuda::backward
