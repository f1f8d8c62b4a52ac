// How the warps of a block divide the tiles of the streaming kernel (stream.cuh), and which slots
// (slots.h) hold their sums.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// How the warps that work on a weight divide its pairs: evenly, or one each if there are fewer
// pairs than warps. Only the last warps may have no share.
struct Shares {
  unsigned pairs, tiles, warps_log2;

  __device__ int first(unsigned warp) const {
    return static_cast<int>(pairs >> warps_log2 ? warp * pairs >> warps_log2 : min(warp, pairs));
  }
  // The tile, of `depth` pairs each, that a warp begins in.
  __device__ int first_tile(unsigned warp, unsigned depth) const {
    // floor(floor(warp * pairs / warps) / depth), without a division if there are many pairs
    return static_cast<int>(pairs >> warps_log2 ? warp * tiles >> warps_log2 : first(warp) / depth);
  }
  __device__ int warp_of(unsigned pair) const {
    return static_cast<int>(pairs >> warps_log2 ? (((pair + 1) << warps_log2) - 1) / pairs : pair);
  }
};

// The slots of a tile, which are consecutive: w + tile for each warp w that has a share of it.
struct SlotRange {
  std::uint16_t first, count;
};

__device__ inline SlotRange slots_of_tile(const Shares& shares, int tile, int depth) {
  const int first = shares.warp_of(tile * depth), last = shares.warp_of((tile + 1) * depth - 1);
  return {static_cast<std::uint16_t>(first + tile), static_cast<std::uint16_t>(last - first + 1)};
}

}  // namespace tessera::cuda
