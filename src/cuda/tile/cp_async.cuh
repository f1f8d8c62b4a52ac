// cp.async: 16 bytes from global to shared memory without a stop in registers. A thread's copies go
// in groups: it starts some, closes the group, and later waits until all but its last n groups have
// landed. Other threads see what has landed after the next barrier. (cuda::ptx has only the bulk
// copies, tma.cuh.)
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Both addresses are multiples of 16. Where `there` is false nothing is read and zeros land.
__device__ inline void copy_async(void* to, const void* from, bool there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the `left` groups that were closed last are under way.
template <int left>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

}  // namespace tessera::cuda
