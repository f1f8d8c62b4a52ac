// Signals between the blocks of one grid, all of which run at the same time (Grid::all_at_once). A
// signal is a counter in global memory: a block increments it once its part is written, and another
// block waits until enough blocks have done so. The warps of a block have different roles:
//
//   workers     make ... hand_over()            other work        receive() ... read
//                             |                                    ^ ^
//   finishers          take_over() write ... raise() --------------' |
//                                              \---> signal          |
//   listener                                         signal ---> pass_on()
//
// Before a thread raises a signal, all its earlier copies must have arrived, so a worker would wait
// for its copies of weights. Reading a signal takes a round trip to the L2 cache; the listener has
// done that before the workers need it. Warps of a block sync at hardware barriers, which also
// order their reads and writes. (cuda::ptx has neither red nor ld with an order, nor bar.)
//
// After receive(), workers may overwrite what the finishers read before raise(). The signal orders
// this already, as it comes from all blocks, also from this one. The finishers come to the barrier
// of receive() as well, so that within a block the order does not depend on global memory. Nobody
// waits longer for that. (compute-sanitizer's racecheck follows neither:
// docs/notebook/gpu_tests.md.)
#pragma once

#include <cstdint>

namespace tessera::cuda {

// A block's threads: workers first, then finishers, then the listener's warp.
template <int workers, int finishers>
struct GridSignals {
  // Barriers of a block have numbers; 0 is __syncthreads().
  static constexpr int kOfWorkers = 1, kOfFinishers = 2, kFirst = 3;

  __device__ static void sync_workers() {
    asm volatile("bar.sync %0, %1;" ::"n"(kOfWorkers), "n"(workers) : "memory");
  }

  // Called by all workers: their results so far belong to the signal. They do not wait.
  __device__ static void hand_over(int number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(kFirst + 2 * number), "n"(workers + finishers)
                 : "memory");
  }
  // Called by all finishers: waits for hand_over().
  __device__ static void take_over(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(kFirst + 2 * number), "n"(workers + finishers)
                 : "memory");
  }
  // Called by all finishers: lets other blocks read what workers and finishers have written, and
  // the workers of this one overwrite what the finishers have read.
  __device__ static void raise(int number, std::int32_t* signal) {
    asm volatile("bar.sync %0, %1;" ::"n"(kOfFinishers), "n"(finishers) : "memory");
    if (threadIdx.x == workers) {
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(signal) : "memory");
    }
    arrive_at_receive(number);
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
    arrive_at_receive(number);
  }
  // Called by all workers: waits for pass_on(), and for raise() of this block. Other blocks' writes
  // are read bypassing the L1 cache (__ldcg).
  __device__ static void receive(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(kFirst + 1 + 2 * number), "n"(kAtReceive) : "memory");
  }

 private:
  static constexpr int kAtReceive = workers + finishers + 32;

  __device__ static void arrive_at_receive(int number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(kFirst + 1 + 2 * number), "n"(kAtReceive) : "memory");
  }
};

}  // namespace tessera::cuda
