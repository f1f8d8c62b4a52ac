// Programmatic dependent launch: a kernel starts while the one ahead of it in the stream still runs
// (Grid::overlaps). Before wait_for_earlier_kernels() it may only read what no kernel writes, such
// as weights. On GPUs before sm_90 kernels do not overlap, and these functions do nothing.
// (cuda::ptx has neither griddepcontrol nor prefetch.)
#pragma once

namespace tessera::cuda {

// Waits until all kernels ahead have ended and their writes can be seen.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start where there is room, if it overlaps.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Fetches into the second cache, for a later read.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace tessera::cuda
