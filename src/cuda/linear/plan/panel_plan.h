// How the blocks of panels.cuh divide a product: planned by the host before each call.
//
// A tile is a panel of features by a block of tokens; it takes all pairs of slabs along K. There
// are two ways to divide tiles. Either each tile has one block, or a cluster of blocks that divide
// its pairs (panel_split.cuh); panels may then be lower than the maximum, so that there are about
// as many tiles as multiprocessors. Or there is one block per multiprocessor, and blocks divide all
// tiles evenly (panel_work.cuh); parts of tiles then go through memory, which takes longer.
#pragma once

#include <cstdint>

#include "cuda/linear/plan/panel_sizes.h"

namespace tessera::cuda {

// Tiles of 16 features in a panel, at most: one for each warp.
inline constexpr int kPanelTiles = 16;
// How many blocks may share a tile.
inline constexpr int kPanelSplits[] = {1, 2, 4, 8};

struct PanelPlan {
  int tokens = 0;  // of a block: 32, 64 or 128
  int token_blocks = 0;
  int panel_tiles = 0, panels = 0;  // of a gated product, half of the tiles are gate's
  int split = 0;  // blocks of a cluster, which has one tile; 0: tiles are shared evenly
  int blocks = 0;
  std::int64_t scratch_bytes = 0;  // for this many tokens or fewer, aligned to 16 bytes

  std::int64_t tiles() const { return std::int64_t{panels} * token_blocks; }
};

// Tokens that a block takes.
inline int panel_tokens(std::int64_t m) { return m <= 32 ? 32 : m <= 64 ? 64 : 128; }

PanelPlan plan_panels(const PanelSizes& sizes);
// The plan that shares tiles evenly. It has no fewer blocks for more tokens.
PanelPlan plan_even_panels(const PanelSizes& sizes);

}  // namespace tessera::cuda
