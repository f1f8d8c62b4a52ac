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

// Slabs of all tokens, two at a time.
tile::BoxedTensor boxes_of(const Tensor& x, std::int64_t m) {
  return {.data = x.data,
          .dtype = x.dtype,
          .sizes = {kSlab, m, x.shape[1] / kSlab, 1},
          .strides = {x.strides[0], kSlab, 0},
          .box_rows = strip_tokens(static_cast<int>(m)),
          .box_planes = 2};
}

}  // namespace

bool takes_strips(const LinearCall& call) {
  const Product& product = call.product;
  return call.m > 0 && call.m <= kMostStripTokens && product.weight.in_features % kSlab == 0 &&
         !product.gated() && takes_panels(call) &&
         tile::can_be_boxed(boxes_of(*as_matrix(product.x), call.m));
}

StripPlan plan_strips(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const DeviceLimits& limits = state_of(call.ctx).limits();
  const TileBoxes boxes = tile_box_sizes(weight);
  return plan_strips({.tiles = static_cast<int>(weight.data.shape[0]),
                      .pairs = pairs_of(weight),
                      .code_bytes = boxes.code_bytes,
                      .scale_bytes = boxes.scale_bytes,
                      .zero_bytes = boxes.zero_bytes,
                      .m = static_cast<int>(call.m),
                      .table_bytes = weight.format == Format::nf4 ? kNf4TableBytes : 0,
                      .multiprocessors = limits.multiprocessors,
                      .shared_bytes = static_cast<int>(limits.shared_bytes)});
}

void run_strips(const LinearCall& call, const StripPlan& plan) {
  const Product& product = call.product;
  const Tensor x = *as_matrix(product.x);
  const Weight& weight = product.weight;
  const int m = static_cast<int>(call.m);
  const StripArgs args{.boxes = tile_boxes(weight, plan.tiles),
                       .x = tile::make_tensor_map(boxes_of(x, call.m)),
                       .tiles = static_cast<int>(weight.data.shape[0]),
                       .pairs = pairs_of(weight),
                       .plan = plan,
                       .m = m,
                       .m_log2 = static_cast<int>(
                           std::bit_width(static_cast<unsigned>(std::min(m, kStripGroup)) - 1)),
                       .epilogue = epilogue_of(product),
                       .row_scales = weight.row_scales.ptr<const float>(),
                       .n = weight.out_features};
  const Grid grid{.blocks = plan.blocks,
                  .threads = static_cast<unsigned>((plan.warps() + 2) * 32),
                  .shared_bytes = plan.shared_bytes,
                  .overlaps = true};
  const auto start = x.dtype == DType::f16 ? strips_f16 : strips_bf16;
  start(Launch(call.ctx, "linear"), grid, weight.format, scale_mode(weight), args);
}

}  // namespace tessera::cuda
