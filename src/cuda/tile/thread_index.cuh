// The thread's index and the block's, read again each time. Values computed from them are then not
// kept in registers between uses, where they would displace others. (The functions of cuda::ptx are
// not volatile.)
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
