// The copy engine (TMA): one thread starts the copy of a whole box of a tensor. The box arrives in
// shared memory, 128 bytes to a row, swizzled as the tensor map specifies (tensor_map.h,
// swizzle.cuh). Elements outside the tensor become zeros. The bytes count on an mbarrier.
//
// The other direction: threads fill a box in shared memory, and one of them starts its store.
// Elements beyond the tensor's end are not written. A stored box must not begin before the tensor:
// a coordinate below zero, which loads accept, is an illegal instruction on an H200.
//
//   <write>; publish_shared(); <a barrier among those who wrote>
//   if (one of them) {
//     store_box(&map, {column, row, 0, 0}, box);
//     close_store_group();
//     wait_until_read<0>();    // before the box may be written again
//     wait_until_stored<0>();  // before others are told that it is in memory; at the end of a
//   }                          // kernel only the box has to be waited for
//
// No kernel stores boxes at present, and only cuda.wide shares them (load_box_for): attention was
// measured with both, and is faster without (docs/notebook/attention.md).
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace tessera::cuda::tile {

// `map` is a CUtensorMap in the kernel's own (grid-constant) parameters; coordinates in elements,
// innermost first.
__device__ inline void load_box(void* to, const void* map, const std::int32_t (&at)[4],
                                std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, map,
                                    at, &barrier);
}

// A box of two dimensions.
__device__ inline void load_box(void* to, const void* map, const std::int32_t (&at)[2],
                                std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, map,
                                    at, &barrier);
}

// One read brings the same box to several blocks of a cluster (cluster.cuh): bit r of `blocks`
// stands for the block of rank r. The box lands in each block at the place of `to`, and its bytes
// count on that block's own `barrier`: each block expects them itself. All blocks must have made
// their barriers before (cluster_meet), and must not end before the box has arrived.
__device__ inline void load_box_for(std::uint16_t blocks, void* to, const void* map,
                                    const std::int32_t (&at)[4], std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, map,
                                    at, &barrier, blocks);
}

// One piece of memory, without a map. Addresses and bytes are multiples of 16.
__device__ inline void copy_bulk(void* to, const void* from, std::uint32_t bytes,
                                 std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, from, bytes,
                             &barrier);
}

// Stores a box to its place in the tensor.
__device__ inline void store_box(const void* map, const std::int32_t (&at)[4], const void* from) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_global, ::cuda::ptx::space_shared, map, at,
                                    from);
}

// One piece of memory, without a map. Addresses and bytes are multiples of 16.
__device__ inline void store_bulk(void* to, const void* from, std::uint32_t bytes) {
  ::cuda::ptx::cp_async_bulk(::cuda::ptx::space_global, ::cuda::ptx::space_shared, to, from, bytes);
}

// A thread's stores form groups: it starts some, and closes the group.
__device__ inline void close_store_group() { ::cuda::ptx::cp_async_bulk_commit_group(); }
// Waits until all but the last `left` closed groups have been read from shared memory.
template <int left>
__device__ void wait_until_read() {
  ::cuda::ptx::cp_async_bulk_wait_group_read(::cuda::ptx::n32_t<left>());
}
// Waits until they are in memory and visible to this thread.
template <int left>
__device__ void wait_until_stored() {
  ::cuda::ptx::cp_async_bulk_wait_group(::cuda::ptx::n32_t<left>());
}

// Fetches the map itself, ahead of the first copy. cuda::ptx does not have it.
__device__ inline void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace tessera::cuda::tile
