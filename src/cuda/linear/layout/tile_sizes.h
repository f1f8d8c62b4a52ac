// Which weights have tiles (tile_layout.h), and their sizes. For the host only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/checked.h"
#include "cuda/linear/layout/tile_layout.h"
#include "tessera/weight.h"

namespace tessera::cuda {

// Whole rows, and groups whose size is a power of two, that split no lane's share and, for 8-bit
// codes, no slab.
inline bool has_tiles(Format format, std::int64_t group) {
  if (format == Format::dense) return false;
  const bool power = std::has_single_bit(static_cast<std::uint64_t>(group));
  return group == 0 || (power && group >= (format == Format::int8 ? kSlab : 16) && group <= 1024);
}

// The dtype of scales in tiles: f32 holds what others store in 16 bits.
inline DType tile_scale_dtype(Format format) {
  const bool bytes = format == Format::nvfp4 || format == Format::mxfp4;
  return bytes ? info(format).scale_dtype : DType::f32;
}

struct TileSizes {
  std::int64_t tiles, slabs;
  std::int64_t tile_bytes;   // of codes
  std::int64_t tile_scales;  // and of zero points
  std::int64_t padded_n;     // with padding to whole tiles
};

inline TileSizes tile_sizes(int bits, std::int64_t group, std::int64_t n, std::int64_t k) {
  const auto divide_up = [](std::int64_t a, std::int64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
  };
  const std::int64_t whole = std::max<std::int64_t>(group, kPair);
  const std::int64_t depth = checked_mul(divide_up(k, whole), whole);
  const std::int64_t tiles = divide_up(n, kTileHeight), slabs = depth / kSlab;
  return {.tiles = tiles,
          .slabs = slabs,
          .tile_bytes = checked_mul(slabs, kTileHeight * kSlab / 8 * bits),
          .tile_scales = checked_mul(group == 0 ? 1 : depth / group, kTileHeight),
          .padded_n = checked_mul(tiles, kTileHeight)};
}

}  // namespace tessera::cuda
