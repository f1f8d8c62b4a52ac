// How the blocks and warps of strips.cuh share a product: chosen by the host, ahead of each call.
//
// A strip is a few tiles (16 rows of W) by all columns; a block makes one strip after the other,
// for a group of up to 16 rows of x. Within it each tile has some warps, which take its pairs of
// slabs in turn.
#pragma once

namespace tessera::cuda {

// Warps that multiply: as many as 64 registers each leave room for, beside the two that load.
inline constexpr int kMostStripWarps = 28;
inline constexpr int kMostStripThreads = (kMostStripWarps + 2) * 32;
// Rows of x in a group, and what the kernel for so many rows works on. Weights are decoded for each
// group anew.
inline constexpr int kStripGroup = 16, kMostStripRows = 128;
constexpr int strip_columns(int rows) { return rows <= 8 ? 8 : kStripGroup; }
constexpr int strip_groups(int rows) { return (rows + kStripGroup - 1) / kStripGroup; }

// Pairs of slabs in a row of W, at most, where it does not matter that a few strips leave
// multiprocessors idle: with 20 it does not, with 80 it does.
inline constexpr int kShortRowPairs = 40;

struct StripSizes {
  int tiles = 0, pairs = 0;                             // of the weight
  int code_bytes = 0, scale_bytes = 0, zero_bytes = 0;  // of a tile's pair
  int rows = 0;                                         // of x
  int table_bytes = 0;                                  // that the format needs in shared memory
  int multiprocessors = 0, shared_bytes = 0;            // of the device
};

struct StripPlan {
  int tiles = 0;               // of a strip
  int shares = 0;              // warps of a tile
  int strips = 0, groups = 0;  // of which each strip is made for each group
  int blocks = 0;
  int stages = 0, stage_bytes = 0;  // a multiple of shares; of 1024
  int zeros_at = 0;                 // bytes from a stage's scales on
  int shared_bytes = 0;

  constexpr int warps() const { return tiles * shares; }
  constexpr int items() const { return strips * groups; }
};

StripPlan plan_strips(const StripSizes& sizes);

}  // namespace tessera::cuda
