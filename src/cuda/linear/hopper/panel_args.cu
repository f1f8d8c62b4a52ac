#include "cuda/linear/hopper/panel_args.h"

#include <algorithm>

#include "cuda/linear/hopper/panels.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/tensor_map.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

// So that the number of all shared pairs of slabs, of fewer than two tiles to a multiprocessor,
// fits 31 bits.
constexpr std::int64_t kMostDepth = 1 << 26;

// Whether two neighbours can be accessed at once.
bool in_twos(const Tensor& tensor) {
  if (!tensor.defined()) return true;
  const Tensor matrix = *as_matrix(tensor);
  return size_of(tensor.dtype) == 2 && reinterpret_cast<std::uintptr_t>(tensor.data) % 4 == 0 &&
         matrix.shape[1] % 2 == 0 && (matrix.shape[0] == 1 || matrix.strides[0] % 2 == 0);
}

// Whether the kernels take such a weight. int8 with groups or zero points is rare and runs
// elsewhere.
bool takes_weight(const Weight& weight) {
  const bool int8_by_rows =
      weight.format != Format::int8 || (weight.group == 0 && !weight.zeros.defined());
  const bool int4_in_groups = weight.format != Format::int4 || weight.group != 0;
  const auto aligned = [](const Tensor& part) {  // as tensor maps require
    return reinterpret_cast<std::uintptr_t>(part.data) % 16 == 0;
  };
  return weight.layout == WeightLayout::cuda_tiles && int8_by_rows && int4_in_groups &&
         weight.in_features <= kMostDepth && aligned(weight.data) && aligned(weight.scales) &&
         aligned(weight.zeros);
}

tile::BoxedTensor boxed_x(const Tensor& matrix, int tokens) {
  return {.data = matrix.data,
          .dtype = matrix.dtype,
          .sizes = {matrix.shape[1], matrix.shape[0], 1, 1},
          .strides = {matrix.strides[0], 0, 0},
          .box_rows = tokens};
}

}  // namespace

bool takes_panels(const LinearCall& call) {
  const Product& product = call.product;
  const Tensor& x = product.x;
  const bool pair =
      !product.gated() || (takes_weight(product.up) && alike(product.weight, product.up));
  return has_hopper_kernels(state_of(call.ctx).limits()) && made_of_matrices(product) &&
         (x.dtype == DType::f16 || x.dtype == DType::bf16) && takes_weight(product.weight) && pair;
}

bool ends_by_lines(const LinearCall& call) {
  const Product& product = call.product;
  const bool rounds =
      product.gated() || product.activation != Activation::none || product.residual.defined();
  const auto by_lines = [](const Tensor& tensor) {
    return !tensor.defined() || rows_begin_on_vectors(tensor);
  };
  return product.out.dtype == product.x.dtype && product.weight.out_features % 8 == 0 &&
         by_lines(product.out) && by_lines(product.residual) &&
         (!rounds || call.m >= kRoundedTokens);
}

bool has_boxed_x(const Product& product) {
  return tile::can_be_boxed(boxed_x(*as_matrix(product.x), 1));
}

PanelSizes panel_sizes(const LinearCall& call, int warps) {
  const Weight& weight = call.product.weight;
  const bool gated = call.product.gated();
  return {.tiles = weight.data.shape[0] * (gated ? 2 : 1),
          .pairs = pairs_of(weight),
          .m = call.m,
          .multiprocessors =
              std::min(state_of(call.ctx).limits().multiprocessors, State::kSlotCounters / warps),
          .gated = gated};
}

PanelWork even_work(std::int64_t tiles, int pairs, int token_blocks, int blocks) {
  const int all = static_cast<int>(tiles);
  // The last tiles, fewer than two for each block, are divided.
  const int whole = all % blocks == 0 ? all : std::max(0, all / blocks - 1) * blocks;
  return {.pairs = pairs,
          .token_blocks = token_blocks,
          .whole_tiles = whole,
          .run_pairs = (all - whole) * pairs / blocks,
          .longer_runs = (all - whole) * pairs % blocks};
}

PanelArgs panel_args(const LinearCall& call, const PanelBoxes& boxes, const PanelWork& work,
                     void* scratch) {
  const Product& product = call.product;
  const Tensor x = *as_matrix(product.x);
  const tile::BoxedTensor x_boxes = boxed_x(x, boxes.tokens);
  const Weight& weight = product.weight;
  PanelArgs args{
      .boxes = tile_boxes(weight, boxes.tiles),
      .tiles = static_cast<int>(weight.data.shape[0]),
      .panel_tiles = boxes.tiles,
      .x = {.matrix = MatrixRows(x),
            .m = x.shape[0],
            .k = static_cast<int>(x.shape[1]),
            .boxed = tile::can_be_boxed(x_boxes)},
      .work = work,
      .parts = {.sums = static_cast<float4*>(scratch), .flags = nullptr},
      .output = {.epilogue = epilogue_of(product),
                 .row_scales = weight.row_scales.ptr<const float>(),
                 .m = x.shape[0],
                 .n = weight.out_features,
                 .twos = in_twos(product.out) && in_twos(product.residual),
                 .eights = size_of(product.out.dtype) == 2 && !product.residual.defined() &&
                           weight.out_features % 8 == 0 && rows_begin_on_vectors(product.out),
                 .lines = ends_by_lines(call)}};
  if (product.gated()) {
    args.up_boxes = tile_boxes(product.up, boxes.tiles);
    args.output.up_row_scales = product.up.row_scales.ptr<const float>();
  }
  if (work.split == 0) {
    args.parts.flags =
        reinterpret_cast<std::uint32_t*>(state_of(call.ctx).counters() + State::kWorkCounters);
  }
  if (args.x.boxed) args.x_map = tile::make_tensor_map(x_boxes);
  return args;
}

}  // namespace tessera::cuda
