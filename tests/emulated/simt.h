// A GPU's threads on the CPU: runs a kernel that was compiled as C++, block after block, each of
// its threads on a stack of its own. A thread runs until it has to wait for others:
//
//   warp w   lane 0 ------> shuffle   lane 1 ------> shuffle   ...   lane 31 ------> shuffle
//                                                     the last to arrive does the shuffle for all
//   block    warp 0 ... all its lanes at the barrier, then warp 1 ..., the last opens the barrier
//
// So code that reads a value too early, because a barrier is missing, reads the wrong value every
// time. Which warp goes first alternates from launch to launch, to catch both sides. A barrier that
// some threads never reach ends the program with a message.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace tessera::emulated {

inline constexpr int kWarpSize = 32;

// Runs `body` as every thread of every block; returns when all have ended. One grid at a time: the
// fake runtime, which calls it, holds a lock.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

// ---- inside a kernel ----------------------------------------------------------------------------

struct ThreadIndex {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
extern constinit ThreadIndex current_thread;
// Its place in its warp.
int lane_index();
void* dynamic_shared_memory();

// What each thread brings to a step that all of a group take together.
using Payloads = void* const*;
// Called once, when all lanes of `mask` have arrived: payloads[lane] is null for lanes outside of
// it or that have ended. Each thread's payload is its own to read results from afterwards.
void warp_together(unsigned mask, void* payload, void (*step)(Payloads payloads));
// The same for all threads of the block that have not ended; payloads[thread].
void block_together(void* payload, void (*step)(Payloads payloads, int threads));
// A barrier with a number (bar.sync, bar.arrive), which opens when so many threads have come. A
// thread that comes again before that ends the program: on a GPU it would count for another one.
void named_barrier(int number, int threads, bool waits);

}  // namespace tessera::emulated
