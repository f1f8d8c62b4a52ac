// Barriers in shared memory (mbarrier): a phase ends when as many threads have arrived as the
// barrier was made for, and all bytes announced to it have been copied. A waiting thread gives the
// parity of the phase, 0 for the first. It need not count how often a barrier has been used.
//
//   __shared__ std::uint64_t full;
//   if (threadIdx.x == 0) { init_barrier(full, 1); publish_barriers(); }
//   __syncthreads();
//   if (producer) { arrive_expecting(full, bytes); <copies that complete on `full`> }
//   wait(full, 0);
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace tessera::cuda::tile {

__device__ inline void init_barrier(std::uint64_t& barrier, std::uint32_t arrivals) {
  ::cuda::ptx::mbarrier_init(&barrier, arrivals);
}

// Makes barriers just initialised visible to the copy engine. Other threads need __syncthreads().
__device__ inline void publish_barriers() {
  ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
}

__device__ inline void arrive(std::uint64_t& barrier) { ::cuda::ptx::mbarrier_arrive(&barrier); }

// Arrives, and keeps the phase open until `bytes` bytes have been copied.
__device__ inline void arrive_expecting(std::uint64_t& barrier, std::uint32_t bytes) {
  ::cuda::ptx::mbarrier_arrive_expect_tx(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                         ::cuda::ptx::space_shared, &barrier, bytes);
}

// Makes this thread's writes to shared memory visible to the copy engine and the tensor cores,
// after the next barrier.
__device__ inline void publish_shared() {
  ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
}

// Waits for the end of the phase of this parity. On a new barrier, parity 1 returns at once.
__device__ inline void wait(std::uint64_t& barrier, std::uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(&barrier, parity)) {
  }
}

// A position in a ring of buffers: place and parity. The parity flips with each round.
template <int size>
struct Ring {
  int place = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++place == size) {
      place = 0;
      parity ^= 1;
    }
  }
};

}  // namespace tessera::cuda::tile
