// How the Hopper attention kernel divides the work.
#pragma once

namespace tessera::cuda {

// A block is one fetching warpgroup and several computing ones, each with 64 query rows. They go
// over the keys in tiles of `keys`, of which `stages` fit in shared memory.
struct HopperTiles {
  int warpgroups;
  int keys;
  int stages;
  bool take_turns;  // at the tensor cores, so that one warpgroup's softmax runs beside products
  bool pattern = false;
  int blocks = 1;      // on a multiprocessor at a time
  bool ahead = false;  // an item's first scores are started before the last one's output is stored
  bool first_turn = false;  // turns are taken at an item's first tile too
  bool ragged = false;      // sequences have different lengths, and keys may lie in pages
};

// full: every row sees every key. band: causal, window or sinks, where larger tiles mean more
// products with hidden keys. pattern: of blocks that are whole tiles. ragged: a band over sequences
// of different lengths, whose keys may lie in pages.
enum class HopperMask { full, band, pattern, ragged };

// Up to this many keys, a band's tiles are as good or better for a call without a mask: the last of
// the larger tiles is not full, and there are few tiles.
inline constexpr int kHopperFewKeys = 1024;

// The rows and keys of a pattern's block are multiples of this number, which is the rows of an item
// and a multiple of the keys of a tile.
inline constexpr int kHopperPatternBlock = 128;

// The one place that chooses tiles.
constexpr HopperTiles hopper_tiles(int dim, HopperMask mask) {
  if (mask == HopperMask::pattern) {
    // A block has the rows of at least two warpgroups. At D 64 one block does not fill a
    // multiprocessor: two run on it at a time, and their registers hold scores of 64 keys each.
    if (dim <= 64) {
      return {.warpgroups = 2,
              .keys = 64,
              .stages = 5,
              .take_turns = false,
              .pattern = true,
              .blocks = 2};
    }
    if (dim <= 128) {
      return {.warpgroups = 2, .keys = 128, .stages = 3, .take_turns = true, .pattern = true};
    }
    return {.warpgroups = 2, .keys = 64, .stages = 2, .take_turns = false, .pattern = true};
  }
  if (mask == HopperMask::ragged) {
    // Like a band, with keys in multiples of the 64 rows of a page's box.
    if (dim <= 64) {
      return {.warpgroups = 3, .keys = 128, .stages = 3, .take_turns = false, .ragged = true};
    }
    if (dim <= 128) {
      return {.warpgroups = 2, .keys = 128, .stages = 3, .take_turns = true, .ragged = true};
    }
    return {.warpgroups = 2, .keys = 64, .stages = 2, .take_turns = false, .ragged = true};
  }
  const bool banded = mask == HopperMask::band;
  // 192 rows: three accumulators of 64 x 64 and of 64 x 128 fit into 160 registers each. Turns gain
  // nothing if warpgroups skip tiles at different times.
  if (dim <= 64) return {.warpgroups = 3, .keys = 128, .stages = 3, .take_turns = !banded};
  // Beside 128 query rows, shared memory holds 128 keys in three stages or 176 in two. Ahead gains
  // 1 to 3% at D 96 and 128, nothing at D 80, and loses at D 64 under a mask and D 256.
  if (dim <= 128) {
    return {.warpgroups = 2,
            .keys = banded ? 128 : 176,
            .stages = banded ? 3 : 2,
            .take_turns = true,
            .ahead = dim > 80,
            .first_turn = dim > 80 && !banded};
  }
  // The same limit. The output alone takes 128 registers, and so few keys leave too little softmax
  // to gain from turns.
  return {.warpgroups = 2, .keys = 80, .stages = 2, .take_turns = false};
}

// The elements of a row in shared memory lie in panels of 64 (128 bytes: one swizzled row).
constexpr int hopper_panels(int dim) { return (dim + 63) / 64; }

constexpr int hopper_shared_bytes(int dim, HopperTiles tiles) {
  const int rows = 64 * tiles.warpgroups + 2 * tiles.stages * tiles.keys;
  constexpr int kBarriers = 1024;
  return rows * hopper_panels(dim) * 128 + kBarriers;
}

// The launch arguments of a call, before its tensor maps are made.
struct HopperPlan {
  int dim = 0;  // of the instance: the head dim, or the next larger one that is compiled
  HopperMask mask = HopperMask::full;
  HopperMask instance =
      HopperMask::full;  // compiled for this mask, which may be a more general one
  int few_rows = 0;      // sequences with up to this many rows have another kernel
};

}  // namespace tessera::cuda
