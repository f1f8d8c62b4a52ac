// How the blocks of wide.cuh divide a product: planned by the host before each call.
//
// A cluster makes tiles of kWideCluster * 128 features by kWideTokens tokens. Either one cluster
// makes each tile, in rounds of as many clusters as run at the same time. Or clusters divide all
// tiles evenly (panel_work.cuh); parts of tiles then go through memory.
#pragma once

#include <cstdint>

#include "cuda/linear/plan/panel_sizes.h"

namespace tessera::cuda {

inline constexpr int kWideTokens = 256;  // of a block
inline constexpr int kWideTiles = 8;     // of 16 features, of a block
inline constexpr int kWideCluster = 2;   // blocks that have the same tokens

struct WidePlan {
  int token_blocks = 0, panels = 0;
  int clusters = 0;
  bool shared = false;             // evenly
  std::int64_t scratch_bytes = 0;  // for this many tokens or fewer, aligned to 16 bytes

  std::int64_t tiles() const { return std::int64_t{panels} * token_blocks; }
};

WidePlan plan_wide(const PanelSizes& sizes);
// The plan that shares tiles evenly. It has no fewer clusters for more tokens.
WidePlan plan_even_wide(const PanelSizes& sizes);

}  // namespace tessera::cuda
