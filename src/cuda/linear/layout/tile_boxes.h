// Tensor maps (tile/tensor_map.h) of a weight in tiles: one pair of slabs of some tiles is a box of
// codes, one of scales and one of zero points.
#pragma once

#include <cuda.h>

#include "tessera/weight.h"

namespace tessera::cuda {

struct TileBoxes {
  CUtensorMap codes{}, scales{}, zeros{};  // [tiles, bytes of a row of tiles]
  int code_bytes = 0;                      // of a tile's pair
  int scale_bytes = 0, zero_bytes = 0;     // none where there are no scales or zero points
  int scale_shift = 0;                     // log2 of the pairs that share them
  int block_shift = 0;                     // TileScales::shift
};

// Only the sizes; then everything, for boxes of the given number of tiles.
TileBoxes tile_box_sizes(const Weight& weight);
TileBoxes tile_boxes(const Weight& weight, int tiles);

}  // namespace tessera::cuda
