// Flags in global memory, with which a warp of one block signals a warp of another block that its
// results can be read. They are zero before and after a kernel. (cuda::ptx has only the fence.)
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace tessera::cuda::tile {

// Called by a whole warp, after all its lanes have written the results.
__device__ inline void raise_flag(std::uint32_t* flag) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
  }
}

// Called by a whole warp: each lane waits for its own flag and lowers it again. Afterwards the
// others' writes can be read, bypassing the L1 cache (__ldcg).
__device__ inline void take_flags(std::uint32_t* flag) {
  std::uint32_t raised = 0;
  while (__any_sync(0xffffffffu, raised == 0)) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  }
  ::cuda::ptx::fence(::cuda::ptx::sem_acq_rel, ::cuda::ptx::scope_gpu);
  *flag = 0;
  __syncwarp();  // a lane also reads results of other lanes' flags
}

}  // namespace tessera::cuda::tile
