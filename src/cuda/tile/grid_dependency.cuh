// Programmatic dependent launch: a kernel starts while the one before it in the stream still runs
// (Grid::overlaps). Before wait_for_earlier_kernels() it writes nothing, and reads only data that
// is constant by contract (tessera/linear.h): the tiles and row scales that prepare() has made. An
// earlier kernel may still write everything else: dense weights, biases, activations. On GPUs
// before sm_90 kernels do not overlap, and the first two functions do nothing. (cuda::ptx has
// neither griddepcontrol nor prefetch.)
#pragma once

namespace tessera::cuda {

// Waits until all earlier kernels have ended and their writes are visible.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel, if it overlaps, start where there is room.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Prefetches into the L2 cache. This is allowed for any address at any time: writes go to the L2
// cache too, so it never holds old data.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace tessera::cuda
