// Programmatic dependent launch: a kernel that starts while the one ahead of it in the stream still
// runs (Grid::overlaps). It may read what no kernel writes, such as weights; whatever else it
// touches comes after wait_for_earlier_kernels(). On GPUs before sm_90 kernels do not overlap, and
// these do nothing. (cuda::ptx has neither griddepcontrol nor prefetch.)
#pragma once

namespace tessera::cuda {

// Until all kernels ahead have ended and their writes can be seen.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start where there is room, if it overlaps.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Into the second cache, for a read later on.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace tessera::cuda
