// Included by every instance file of the Hopper kernel.
#pragma once

#include <type_traits>

#include "core/half.h"
#include "cuda/attention/hopper/hopper.cuh"
#include "cuda/attention/hopper/launch.h"

namespace tessera::cuda {

template <typename T, int dim>
void launch_hopper_kernel(const Launch& launch, const HopperCall& call, HopperMask mask,
                          int blocks) {
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  const auto start = [&]<HopperTiles tiles>(std::integral_constant<HopperTiles, tiles>) {
    using K = hopper::Kernel<Element, dim, tiles>;
    launch(
        hopper::attend<K>,
        {.blocks = blocks, .threads = K::kThreads, .shared_bytes = hopper_shared_bytes(dim, tiles)},
        call);
  };
  switch (mask) {
    case HopperMask::full:
      return start(std::integral_constant<HopperTiles, hopper_tiles(dim, HopperMask::full)>());
    case HopperMask::band:
      return start(std::integral_constant<HopperTiles, hopper_tiles(dim, HopperMask::band)>());
    case HopperMask::pattern:
      return start(std::integral_constant<HopperTiles, hopper_tiles(dim, HopperMask::pattern)>());
    case HopperMask::ragged:
      return start(std::integral_constant<HopperTiles, hopper_tiles(dim, HopperMask::ragged)>());
  }
}

}  // namespace tessera::cuda
