// How the blocks of mma.cuh divide a product: planned by the host before each call.
//
// A tile of the output is some features (in a gated product, gate and up of each) by some tokens,
// and takes all pairs of slabs along K. Either each warp of a block has its own features, or two
// warps share features and take every other pair; a tile then has half as many features. Blocks
// divide the pairs of all tiles evenly, in one long row:
//
//   tile 0                tile 1                tile 2
//   |p0 p1 p2 .... p31|p0 p1 .......... p31|p0 ............ p31|
//   [ block 0   ][ block 1   ][ block 2   ] ...   [ block 5    ]
//
// If a tile has several blocks, parts of its sums go through memory.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "cuda/linear/layout/tile_layout.h"

namespace tessera::cuda {

inline constexpr int kMmaWarps = 8;
inline constexpr int kMmaThreads = kMmaWarps * 32;
inline constexpr int kMmaWarpFeatures = 32;  // two tiles of 16
// With more tiles than this, each tile has its own block.
inline constexpr int kMmaSharedTiles = 8192;

// The pitch of activations in shared memory, in elements: 16 bytes more than a pair of slabs, so
// that the eight tokens of a fragment lie in different banks.
inline constexpr int kMmaPitch = kPair + 8;
TESSERA_HOST_DEVICE constexpr int mma_stage_bytes(int tokens) { return tokens * kMmaPitch * 2; }
// Stages of a sharer: one in use, one in flight.
inline constexpr int kMmaStages = 2;
// The sums at the end, of all tokens of a tile or of as many as fit: [sharer][token][feature]. The
// pitch of tokens is chosen so that a warp's lanes write to different banks.
TESSERA_HOST_DEVICE constexpr int mma_pass_tokens(int tokens) {
  return tokens == 128 ? 64 : tokens;
}
TESSERA_HOST_DEVICE constexpr int mma_sum_pitch(int features) { return features + 4; }

// The work of a call.
struct MmaWork {
  std::int64_t n = 0;  // features of whole tiles; in a gated product, of gate and up
  int pairs = 0;       // of slabs, along K
  std::int64_t m = 0;
  int tile_bytes = 0;   // of a tile's pair: codes, scales, zero points
  int table_bytes = 0;  // of nf4, in shared memory
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0;  // that a block may use
};

struct MmaPlan {
  int tokens = 0;  // of a tile: 32, 64 or 128
  int token_blocks = 0;
  int sharers_log2 = 0;  // of the warps that share features: one, or two
  int feature_blocks = 0;
  int blocks = 0;
  int units = 0;                    // pairs of all tiles
  int block_units = 0, longer = 0;  // of a block; the first blocks have one more

  TESSERA_HOST_DEVICE int features() const { return kMmaWarps * kMmaWarpFeatures >> sharers_log2; }
  // The first unit of a block, and the block that has a unit.
  TESSERA_HOST_DEVICE int first_unit(int block) const {
    return block * block_units + (block < longer ? block : longer);
  }
  TESSERA_HOST_DEVICE int block_of(int unit) const {
    const int of_longer = longer * (block_units + 1);
    return unit < of_longer ? unit / (block_units + 1) : longer + (unit - of_longer) / block_units;
  }
  std::int64_t tiles() const { return std::int64_t{feature_blocks} * token_blocks; }
  bool whole_tiles() const { return units % blocks == 0 && tiles() % blocks == 0; }
  // Floats that blocks exchange: at most two parts from each block.
  std::int64_t part_floats() const {
    return whole_tiles() ? 0 : std::int64_t{2} * blocks * tokens * features();
  }
};

// The plan with these tokens, sharers and blocks (at most one block for each pair).
MmaPlan mma_plan_of(const MmaWork& work, int tokens, int sharers_log2, std::int64_t blocks);
int mma_shared_bytes(const MmaWork& work, const MmaPlan& plan);
// The plan with the least expected time.
MmaPlan plan_mma(const MmaWork& work);
// The most that the plan for this many tokens, or for fewer, needs.
std::int64_t most_mma_part_floats(const MmaWork& work);

}  // namespace tessera::cuda
