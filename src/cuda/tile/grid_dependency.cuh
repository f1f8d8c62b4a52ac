// Programmatic dependent launch: a kernel starts while the one ahead of it in the stream still runs
// (Grid::overlaps). Before wait_for_earlier_kernels() it writes nothing, and reads only what is
// constant by contract (tessera/linear.h): the tiles and row scales that prepare() has made. All
// else may be what the kernel ahead is about to write: dense weights, biases, activations. On GPUs
// before sm_90 kernels do not overlap, and the first two functions do nothing.
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

// Fetches into the L2 cache, for a later read. Anything may be fetched at any time: writes go to
// the L2 cache too, so it never holds old data.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace tessera::cuda
