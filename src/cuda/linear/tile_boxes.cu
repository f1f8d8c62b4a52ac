#include "cuda/linear/tile_boxes.h"

#include "cuda/linear/scales.cuh"
#include "cuda/linear/tile_layout.h"
#include "cuda/tile/tensor_map.h"

namespace tessera::cuda {
namespace {

CUtensorMap map_of(const Tensor& tiled, int box_bytes, int box_rows) {
  return tile::make_tensor_map(tile::BoxedBytes{.data = tiled.data,
                                                .rows = tiled.shape[0],
                                                .row_bytes = tiled.shape[1] * size_of(tiled.dtype),
                                                .box_rows = box_rows,
                                                .box_bytes = box_bytes});
}

}  // namespace

TileBoxes tile_box_sizes(const Weight& weight) {
  const TileScales scales = tile_scales(weight);
  const ScaleMode mode = scale_mode(weight);
  TileBoxes boxes{.code_bytes = pair_bytes(weight.format), .block_shift = scales.shift};
  if (mode == ScaleMode::none) return boxes;
  // The scales of 16 rows and as many blocks as the pair has, or one that pairs share.
  const int blocks = mode == ScaleMode::fragments ? 2 << scales.shift : scales.shift == 0 ? 2 : 1;
  boxes.scale_bytes = blocks * kTileHeight * size_of(weight.scales.dtype);
  boxes.scale_shift = mode == ScaleMode::sums && scales.shift > 1 ? scales.shift - 1 : 0;
  if (scales.zeros) boxes.zero_bytes = blocks * kTileHeight;
  return boxes;
}

TileBoxes tile_boxes(const Weight& weight, int tiles) {
  TileBoxes boxes = tile_box_sizes(weight);
  boxes.codes = map_of(weight.data, boxes.code_bytes, tiles);
  if (boxes.scale_bytes > 0) boxes.scales = map_of(weight.scales, boxes.scale_bytes, tiles);
  if (boxes.zero_bytes > 0) boxes.zeros = map_of(weight.zeros, boxes.zero_bytes, tiles);
  return boxes;
}

}  // namespace tessera::cuda
