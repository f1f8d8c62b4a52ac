// How the blocks of wide.cuh share a product: chosen by the host, ahead of each call.
//
// A cluster makes tiles of kWideCluster * 128 features by kWideTokens tokens. Either each tile is
// made by one cluster, in rounds of as many as run at the same time; or they are shared evenly,
// whatever their number (panel_work.cuh): then parts of tiles go through memory.
#pragma once

#include <cstdint>

namespace tessera::cuda {

inline constexpr int kWideTokens = 256;  // of a block
inline constexpr int kWideTiles = 8;     // of 16 features, of a block
inline constexpr int kWideCluster = 2;   // blocks that have the same tokens

struct WidePlan {
  int token_blocks = 0, panels = 0;
  int clusters = 0;
  bool shared = false;  // evenly

  std::int64_t tiles() const { return std::int64_t{panels} * token_blocks; }
};

// weight_tiles: of 16 features; pairs: of slabs, in a row.
WidePlan plan_wide(std::int64_t weight_tiles, int pairs, std::int64_t rows, int multiprocessors);
// The plan that shares tiles evenly. It has no fewer clusters for more rows.
WidePlan plan_even_wide(std::int64_t weight_tiles, int pairs, std::int64_t rows,
                        int multiprocessors);

}  // namespace tessera::cuda
