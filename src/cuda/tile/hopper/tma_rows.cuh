// The copy engine (tma.cuh) over whole rows of heads: boxes of five dimensions, as make_row_map()
// (tensor_map.h) cuts them.
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace tessera::cuda::tile {

// Coordinates in elements, innermost first: {0, row, panel, head, batch or page}.
__device__ inline void load_rows(void* to, const void* map, const std::int32_t (&at)[5],
                                 std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, map,
                                    at, &barrier);
}

}  // namespace tessera::cuda::tile
