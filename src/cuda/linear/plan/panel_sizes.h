// What the plans of cuda.panels (panel_plan.h) and cuda.wide (wide_plan.h) have in common.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::cuda {

struct PanelSizes {
  std::int64_t tiles = 0;  // of 16 output features; in a gated product, of both weights
  int pairs = 0;           // of slabs, along K
  std::int64_t m = 0;      // tokens
  int multiprocessors = 0;
  bool gated = false;  // a block has as many tiles of gate as of up
};

// How many blocks of `size` hold `all`.
constexpr int blocks_of(std::int64_t all, std::int64_t size) {
  return static_cast<int>((all + size - 1) / size);
}

// How many sharers, of those that run at the same time, divide all tiles evenly. One block adds up
// a tile's sums, so a tile has at most five parts, of at least four pairs. More tiles never have
// fewer sharers.
constexpr int even_sharers(std::int64_t tiles, int pairs, int at_once) {
  const std::int64_t least = std::max(4, (pairs + 3) / 4);
  const std::int64_t most = std::max(tiles, tiles * pairs / least);
  return static_cast<int>(std::min<std::int64_t>(most, at_once));
}

}  // namespace tessera::cuda
