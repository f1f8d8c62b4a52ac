// Four warps as one: barriers among some of a block's warpgroups, and registers moved between them.
// (cuda::ptx has neither bar nor setmaxnreg.)
#pragma once

namespace tessera::cuda::tile {

inline constexpr int kWarpgroup = 128;

// The block's barriers 1 to 15 (0 is __syncthreads). `threads` counts both waiting threads and
// threads that only arrive.
__device__ inline void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Called by all threads of a warpgroup: from here on each has this many registers, a multiple of 8.
// Waits until other warpgroups have given up enough registers.
template <int registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace tessera::cuda::tile
