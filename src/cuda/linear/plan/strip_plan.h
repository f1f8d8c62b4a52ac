// How the blocks and warps of strips.cuh divide a product: planned by the host before each call.
//
// A strip is a few tiles (16 output features) by all of K. A block makes one strip after the other,
// for a group of up to 16 tokens. Within a strip each tile has some warps, which take its pairs of
// slabs in turn.
#pragma once

namespace tessera::cuda {

// Warps that multiply: as many as fit with 64 registers for each thread, beside the two that load.
inline constexpr int kMostStripWarps = 28;
inline constexpr int kMostStripThreads = (kMostStripWarps + 2) * 32;
// Tokens in a group, and how many the kernel works on. Weights are decoded again for each group.
inline constexpr int kStripGroup = 16, kMostStripTokens = 128;
constexpr int strip_tokens(int m) { return m <= 8 ? 8 : kStripGroup; }
constexpr int strip_groups(int m) { return (m + kStripGroup - 1) / kStripGroup; }

// Up to this many pairs of slabs along K, it does not matter that a few strips leave
// multiprocessors idle. (Measured: with 20 pairs it does not matter, with 80 it does.)
inline constexpr int kShallowPairs = 40;

struct StripSizes {
  int tiles = 0, pairs = 0;                             // of the weight
  int code_bytes = 0, scale_bytes = 0, zero_bytes = 0;  // of a tile's pair
  int m = 0;                                            // tokens
  int table_bytes = 0;                                  // that the format needs in shared memory
  int multiprocessors = 0, shared_bytes = 0;            // of the device
};

struct StripPlan {
  int tiles = 0;               // of a strip
  int shares = 0;              // warps of a tile
  int strips = 0, groups = 0;  // each strip is made once for each group
  int blocks = 0;
  int stages = 0, stage_bytes = 0;  // a multiple of shares; of 1024
  int zeros_at = 0;                 // bytes from a stage's scales on
  int shared_bytes = 0;

  constexpr int warps() const { return tiles * shares; }
  constexpr int items() const { return strips * groups; }
};

StripPlan plan_strips(const StripSizes& sizes);

}  // namespace tessera::cuda
