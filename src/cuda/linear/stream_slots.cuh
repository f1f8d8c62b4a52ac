// How the warps of a block share the tiles of the streaming kernel (stream.cuh), and where their
// sums meet.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// [rows of x][16 rows of W] f32, so far apart that the lanes of a fragment lie in different banks.
inline constexpr int kSlotPitch = 20;
constexpr int slot_size(int columns) { return columns * kSlotPitch; }

// Of both slabs of the pairs, and of each eight rows of x.
template <int kColumns>
__device__ inline void put_sums(float* slot, int lane, float (&sums)[2][kColumns / 8][4]) {
#pragma unroll
  for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int m = c * 8 + lane % 4 * 2 + r % 2, row = lane / 4 + r / 2 * 8;
      slot[m * kSlotPitch + row] = sums[0][c][r] + sums[1][c][r];
      sums[0][c][r] = sums[1][c][r] = 0;
    }
  }
}

// How the warps that work on a weight share its pairs: evenly, or one each where there are fewer.
// No warp before the last one with a share has none.
struct Shares {
  unsigned pairs, tiles, warps_log2;

  __device__ int first(unsigned warp) const {
    return static_cast<int>(pairs >> warps_log2 ? warp * pairs >> warps_log2 : min(warp, pairs));
  }
  // The tile, of `depth` pairs each, that a warp begins in.
  __device__ int first_tile(unsigned warp, unsigned depth) const {
    // floor(floor(warp * pairs / warps) / depth), with no division where there are many pairs
    return static_cast<int>(pairs >> warps_log2 ? warp * tiles >> warps_log2 : first(warp) / depth);
  }
  __device__ int warp_of(unsigned pair) const {
    return static_cast<int>(pairs >> warps_log2 ? (((pair + 1) << warps_log2) - 1) / pairs : pair);
  }
};

// The slots of a tile, one behind the other: w + tile for each warp w that has a share of it.
struct SlotRange {
  std::uint16_t first, count;
};

__device__ inline SlotRange slots_of_tile(const Shares& shares, int tile, int depth) {
  const int first = shares.warp_of(tile * depth), last = shares.warp_of((tile + 1) * depth - 1);
  return {static_cast<std::uint16_t>(first + tile), static_cast<std::uint16_t>(last - first + 1)};
}

}  // namespace tessera::cuda
