// Separate from tile_boxes.cu, which needs tensor maps, because kernels that copy without them use
// it too.
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_boxes.h"
#include "cuda/linear/layout/tile_layout.h"

namespace tessera::cuda {

TileBoxes tile_box_sizes(const Weight& weight) {
  const TileScales scales = tile_scales(weight);
  const ScaleMode mode = scale_mode(weight);
  TileBoxes boxes{.code_bytes = pair_bytes(weight.format), .block_shift = scales.shift};
  if (mode == ScaleMode::none) return boxes;
  // The scales of 16 rows, for all blocks of the pair or for one block that pairs share.
  const int blocks = mode == ScaleMode::fragments ? 2 << scales.shift : scales.shift == 0 ? 2 : 1;
  boxes.scale_bytes = blocks * kTileHeight * size_of(weight.scales.dtype);
  boxes.scale_shift = mode == ScaleMode::sums && scales.shift > 1 ? scales.shift - 1 : 0;
  if (scales.zeros) boxes.zero_bytes = blocks * kTileHeight;
  return boxes;
}

}  // namespace tessera::cuda
