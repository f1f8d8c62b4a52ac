// The host's side of strips.cuh.
#include "cuda/linear/hopper/strips.h"

#include <algorithm>
#include <bit>

#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strip_kernels.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/tensor_map.h"

namespace tessera::cuda {
namespace {

// Slabs of all rows, two at a time.
tile::BoxedTensor boxes_of(const Tensor& x) {
  return {.data = x.data,
          .dtype = x.dtype,
          .sizes = {kSlab, x.shape[0], x.shape[1] / kSlab, 1},
          .strides = {x.strides[0], kSlab, 0},
          .box_rows = strip_columns(static_cast<int>(x.shape[0])),
          .box_planes = 2};
}

}  // namespace

bool strips_take(Context& ctx, const Product& product, std::int64_t rows) {
  if (rows == 0 || rows > kMostStripRows || product.weight.in_features % kSlab != 0 ||
      !panels_take(ctx, product) || !tile::can_be_boxed(boxes_of(*as_matrix(product.x)))) {
    return false;
  }
  // A few strips of long rows would leave multiprocessors idle for long.
  return pairs_of(product.weight) <= kShortRowPairs ||
         3 * strips_plan(ctx, product).blocks >= 2 * state_of(ctx).limits().multiprocessors;
}

StripPlan strips_plan(Context& ctx, const Product& product) {
  const Weight& weight = product.weight;
  const DeviceLimits& limits = state_of(ctx).limits();
  const TileBoxes boxes = tile_box_sizes(weight);
  return plan_strips({.tiles = static_cast<int>(weight.data.shape[0]),
                      .pairs = pairs_of(weight),
                      .code_bytes = boxes.code_bytes,
                      .scale_bytes = boxes.scale_bytes,
                      .zero_bytes = boxes.zero_bytes,
                      .rows = static_cast<int>(as_matrix(product.x)->shape[0]),
                      .table_bytes = weight.format == Format::nf4 ? kNf4TableBytes : 0,
                      .multiprocessors = limits.multiprocessors,
                      .shared_bytes = static_cast<int>(limits.shared_bytes)});
}

void multiply_strips(Context& ctx, const Product& product) {
  const Tensor x = *as_matrix(product.x);
  const Weight& weight = product.weight;
  const int rows = static_cast<int>(x.shape[0]);
  const StripPlan plan = strips_plan(ctx, product);
  const StripArgs args{.boxes = tile_boxes(weight, plan.tiles),
                       .x = tile::make_tensor_map(boxes_of(x)),
                       .tiles = static_cast<int>(weight.data.shape[0]),
                       .pairs = pairs_of(weight),
                       .plan = plan,
                       .rows = rows,
                       .rows_log2 = static_cast<int>(
                           std::bit_width(static_cast<unsigned>(std::min(rows, kStripGroup)) - 1)),
                       .finish = finish_of(product),
                       .row_scales = weight.row_scales.ptr<const float>(),
                       .out_features = weight.out_features};
  const Grid grid{.blocks = plan.blocks,
                  .threads = static_cast<unsigned>((plan.warps() + 2) * 32),
                  .shared_bytes = plan.shared_bytes,
                  .overlaps = true};
  const auto start = x.dtype == DType::f16 ? strips_f16 : strips_bf16;
  start(Launch(ctx, "linear"), grid, weight.format, scale_mode(weight), args);
}

}  // namespace tessera::cuda
