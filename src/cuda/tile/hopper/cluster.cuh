// Blocks of a cluster (Grid::cluster) write to each other's shared memory. The bytes that one block
// sends count on a barrier of the receiver, like the copy engine's bytes (mbarrier.cuh):
//
//   cluster_meet();  // the others have started, and their barriers are made
//   send(shared_of(rank, place), shared_of(rank, &barrier), numbers);
//   ...
//   arrive_expecting(barrier, bytes); wait(barrier, 0);
//
// A receiver must not end before everything has arrived.
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace tessera::cuda::tile {

// This block's place in its cluster.
__device__ inline int cluster_rank() {
  return static_cast<int>(::cuda::ptx::get_sreg_cluster_ctarank());
}

// Waits for all threads of the cluster that have not ended. It does not order their writes to
// memory, but all barriers that were published before (mbarrier.cuh) are visible. (cuda::ptx has it
// without .aligned.)
__device__ inline void cluster_meet() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same, and all earlier accesses to each other's memory are complete: what was written is
// visible, and a block may end.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Maps an address in this block to the same place in block `rank`, which may be this one. cuda::ptx
// does not have it, and takes pointers where send() takes such addresses.
__device__ inline std::uint32_t shared_of(int rank, const void* here) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(here))), "r"(rank));
  return address;
}

// Arrives on a barrier of another block, or of this one.
__device__ inline void arrive_at(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Writes to shared memory of another block, or of this one.
__device__ inline void store_at(std::uint32_t to, unsigned long long number) {
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(to), "l"(number) : "memory");
}

__device__ inline void send(std::uint32_t to, std::uint32_t barrier, const float4& numbers) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(numbers.x), "f"(numbers.y), "f"(numbers.z), "f"(numbers.w), "r"(barrier)
      : "memory");
}

}  // namespace tessera::cuda::tile
