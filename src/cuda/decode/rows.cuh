// The ends of products in the persistent kernel: the rows of a block's tasks, and the use of their
// sums.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/weights.cuh"

namespace tessera::cuda::decode {

// A row of a block's tasks: its number, and the slots of its sums. The same for all layers.
struct Row {
  int n;               // of its weight
  std::uint16_t slot;  // the first of the row's floats among the slots
  std::uint8_t count;  // of slots
  std::uint8_t weight : 4, part : 4;
};
static_assert(sizeof(Row) == 8 && kMostWeights <= 16 && kMostParts <= 16);

// A block's part of a product, also the same for all layers.
struct alignas(16) BlockStage {
  int first_row;  // among Places::rows
  int rows;       // gate and up: gate's rows; up's follow
  int first_slot;
  int first_part, parts;
};

// i counts all rows of the block's tasks. If tasks are taken together, the rows of the first task
// of each group come first.
template <typename Kind, typename Layer>
__device__ inline Row row_of(const Call& call, int stage, const BlockShare& share, int i) {
  const StageShape& shape = call.stages[stage];
  const int rows = share.tasks / shape.together * Kind::kRows, of_pair = i / rows;
  const int task = (i - of_pair * rows) / Kind::kRows * shape.together + of_pair;
  const int first = share.warps.warp_of(task * shape.units);
  const int last = share.warps.warp_of((task + 1) * shape.units - 1);
  const int part = (share.first + task) / shape.tiles, row = i % Kind::kRows;
  const Piece piece = Layer::piece(call, stage, share.first + task - part * shape.tiles);
  return {.n = piece.tile * Kind::kRows + row,
          .slot = static_cast<std::uint16_t>((task + first) * Kind::kRows + row),
          .count = static_cast<std::uint8_t>(last - first + 1),
          .weight = static_cast<std::uint8_t>(piece.weight),
          .part = static_cast<std::uint8_t>(part)};
}

// The other inputs of a row besides its sum.
template <typename T>
struct RowEnds {
  float scale = 0;
  T bias{};  // as loaded: converting it would wait for it
};
template <typename Kind>
__device__ inline RowEnds<typename Kind::Element> load_ends(const LayerWeights& layer, int weight,
                                                            int n) {
  using T = typename Kind::Element;
  RowEnds<T> ends;
  if constexpr (Kind::kFormat != Format::dense) ends.scale = layer.row_scales[weight][n];
  if (const auto* bias = static_cast<const T*>(layer.bias[weight])) ends.bias = bias[n];
  return ends;
}

// The product of a row, without bias.
template <typename Kind>
__device__ inline float product_of(const Row& row, float scale, const float* slots) {
  float sum = 0;
#pragma unroll 1  // two or three
  for (int s = 0; s < row.count; ++s) sum += slots[row.slot + s * Kind::kRows];
  if constexpr (Kind::kFormat != Format::dense) sum *= Kind::kOfSums * scale;
  return sum;
}

}  // namespace tessera::cuda::decode
