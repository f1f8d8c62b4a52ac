// cp.async: copies 16 bytes from global to shared memory without registers. A thread's copies form
// groups: it starts some, closes the group, and later waits until all but its last n groups have
// arrived. Other threads see the bytes after the next barrier. (cuda::ptx has only the bulk copies,
// tma.cuh.)
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Both addresses are multiples of 16. If `there` is false, nothing is read and zeros are written.
__device__ inline void copy_async(void* to, const void* from, bool there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the last `left` closed groups are in flight.
template <int left>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

}  // namespace tessera::cuda
