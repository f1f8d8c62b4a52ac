#include "cuda/linear/layout/tile_boxes.h"

#include "cuda/tile/hopper/tensor_map.h"

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

TileBoxes tile_boxes(const Weight& weight, int tiles) {
  TileBoxes boxes = tile_box_sizes(weight);
  boxes.codes = map_of(weight.data, boxes.code_bytes, tiles);
  if (boxes.scale_bytes > 0) boxes.scales = map_of(weight.scales, boxes.scale_bytes, tiles);
  if (boxes.zero_bytes > 0) boxes.zeros = map_of(weight.zeros, boxes.zero_bytes, tiles);
  return boxes;
}

}  // namespace tessera::cuda
