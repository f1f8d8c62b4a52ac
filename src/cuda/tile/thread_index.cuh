// The thread's index and the block's, read again each time: what a kernel computes from it is then
// not kept in registers from one use to the next, where it would push others out. (What cuda::ptx
// has is not volatile.)
#pragma once

namespace tessera::cuda {

__device__ inline int fresh_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
__device__ inline int fresh_block_index() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

}  // namespace tessera::cuda
