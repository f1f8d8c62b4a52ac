// How the blocks and warps of strips.cuh share a product: chosen by the host, ahead of each call.
//
// A strip is a few tiles (16 rows of W) by all columns; a block makes one strip after the other.
// Within it each tile has some warps, which take its pairs of slabs in turn.
#pragma once

namespace tessera::cuda {

// Warps that multiply: as many as 64 registers each leave room for, beside the two that load.
inline constexpr int kMostStripWarps = 28;
inline constexpr int kMostStripThreads = (kMostStripWarps + 2) * 32;
// Rows of x that there are kernels for, and what the one for so many works on.
inline constexpr int kMostStripRows = 16;
constexpr int strip_columns(int rows) { return rows <= 8 ? 8 : 16; }

struct StripSizes {
  int tiles = 0, pairs = 0;                             // of the weight
  int code_bytes = 0, scale_bytes = 0, zero_bytes = 0;  // of a tile's pair
  int rows = 0;                                         // of x
  int table_bytes = 0;                                  // that the format needs in shared memory
  int multiprocessors = 0, shared_bytes = 0;            // of the device
};

struct StripPlan {
  int tiles = 0;   // of a strip
  int shares = 0;  // warps of a tile
  int strips = 0, blocks = 0;
  int stages = 0, stage_bytes = 0;  // a multiple of shares; of 1024
  int zeros_at = 0;                 // bytes from a stage's scales on
  int shared_bytes = 0;

  constexpr int warps() const { return tiles * shares; }
};

StripPlan plan_strips(const StripSizes& sizes);

}  // namespace tessera::cuda
