// The copy engine (TMA): one thread asks for a whole box of a tensor. The box lands in shared
// memory, 128 bytes to a row, swizzled as the tensor map says (tensor_map.h); what lies outside of
// the tensor lands as zeros. Its bytes count on an mbarrier.
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

// Of two dimensions.
__device__ inline void load_box(void* to, const void* map, const std::int32_t (&at)[2],
                                std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, map,
                                    at, &barrier);
}

// One piece of memory, without a map. Addresses and bytes are multiples of 16.
__device__ inline void copy_bulk(void* to, const void* from, std::uint32_t bytes,
                                 std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, from, bytes,
                             &barrier);
}

// Fetches the map itself, ahead of the first copy.
__device__ inline void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace tessera::cuda::tile
