// cp.async of 4 bytes, for a lane's data besides its vectors (cp_async.cuh). Such copies go through
// the L1 cache.
#pragma once

#include <cstdint>

#include "cuda/tile/cp_async.cuh"

namespace tessera::cuda {

// Both addresses are multiples of 4. The copy belongs to the same groups as copy_async()'s.
__device__ inline void copy_async_word(void* to, const void* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

}  // namespace tessera::cuda
