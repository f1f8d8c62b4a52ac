// Signals between the blocks of one grid, all of which run at the same time (Grid::all_at_once). A
// signal is a counter in global memory: a block raises it by one when its part is written, and
// another waits until as many blocks as it needs have done so. In each block two warps do nothing
// else:
//
//   workers    write ... hand_over()        other work       receive() ... read
//                             |                                  ^
//   raiser          raise_when_handed_over() ---> signal         |
//   listener                                      signal ---> pass_on()
//
// To raise a signal, a thread waits until all it asked for before has come: a worker would wait for
// its copies of weights. To look at a signal takes a way to the second cache and back: the listener
// has looked when the workers come. Warps of a block meet at the hardware's barriers, which also
// order their reads and writes. (cuda::ptx has neither red nor ld with an order, nor bar.)
#pragma once

#include <cstdint>

namespace tessera::cuda {

// A block's threads: workers first, then the raiser's warp, then the listener's.
template <int workers>
struct GridSignals {
  static constexpr int kWithWarp = workers + 32;

  // Barriers of a block have numbers; 0 is that of __syncthreads().
  __device__ static void sync_workers() {
    asm volatile("bar.sync 1, %0;" ::"n"(workers) : "memory");
  }

  // Called by all workers: what they have written belongs to the signal. They do not wait.
  __device__ static void hand_over(int number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + 2 * number), "n"(kWithWarp) : "memory");
  }
  // Called by the raiser's warp.
  __device__ static void raise_when_handed_over(int number, std::int32_t* signal) {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + 2 * number), "n"(kWithWarp) : "memory");
    if (threadIdx.x % 32 == 0) {
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(signal) : "memory");
    }
  }
  // Called by the listener's warp: waits until the signal was raised `times` times.
  __device__ static void pass_on(int number, const std::int32_t* signal, std::int32_t times) {
    if (threadIdx.x % 32 == 0) {
      std::int32_t raised = 0;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(raised) : "l"(signal) : "memory");
      } while (raised < times);
    }
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"r"(3 + 2 * number), "n"(kWithWarp) : "memory");
  }
  // Called by all workers: waits for that. Others' writes are read past the first cache (__ldcg).
  __device__ static void receive(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(3 + 2 * number), "n"(kWithWarp) : "memory");
  }
};

}  // namespace tessera::cuda
