// The host's side of panels.cuh.
#include "cuda/linear/panels.h"

#include <algorithm>

#include "cuda/hopper_kernels.h"
#include "cuda/linear/panel_kernels.h"
#include "cuda/linear/panel_plan.h"
#include "cuda/linear/scales.cuh"
#include "cuda/state.h"
#include "cuda/tile/tensor_map.h"
#include "cuda/vectors.h"

namespace tessera::cuda {
namespace {

// So that all pairs that are shared, of less than two tiles to a multiprocessor, count in 31 bits.
constexpr std::int64_t kMostColumns = 1 << 26;

// ---- how much there is --------------------------------------------------------------------------

using Planner = PanelPlan(std::int64_t, int, std::int64_t, int);

// A counter is a warp's flag, and of those there are so many.
constexpr int kMostBlocks = State::kSlotCounters / kPanelWarps;

PanelPlan plan_of(Context& ctx, const Weight& weight, std::int64_t rows, Planner& planner) {
  return planner(weight.data.shape[0], pairs_of(weight), rows,
                 std::min(ctx.cuda_state().limits().multiprocessors, kMostBlocks));
}

PanelWork work_of(const PanelPlan& plan, int pairs) {
  if (plan.split > 0) {
    return {.pairs = pairs,
            .token_blocks = plan.token_blocks,
            .split = plan.split,
            .split_groups = (plan.tokens / 8 + plan.split - 1) / plan.split};
  }
  const int tiles = static_cast<int>(plan.tiles());
  // Two rounds or less are shared.
  const int rounds = tiles / plan.blocks;
  const int whole = tiles % plan.blocks == 0 ? tiles : std::max(0, rounds - 1) * plan.blocks;
  return {.pairs = pairs,
          .token_blocks = plan.token_blocks,
          .whole_tiles = whole,
          .run_pairs = (tiles - whole) * pairs / plan.blocks,
          .longer_runs = (tiles - whole) * pairs % plan.blocks};
}

// ---- arguments ----------------------------------------------------------------------------------

// Two neighbours at once.
bool in_pairs(const Tensor& tensor) {
  if (!tensor.defined()) return true;
  const Tensor matrix = *as_matrix(tensor);
  return size_of(tensor.dtype) == 2 && reinterpret_cast<std::uintptr_t>(tensor.data) % 4 == 0 &&
         matrix.shape[1] % 2 == 0 && (matrix.shape[0] == 1 || matrix.strides[0] % 2 == 0);
}

// Boxes of a panel's tiles.
CUtensorMap map_of(const Tensor& tiled, int box_bytes, int box_rows) {
  return tile::make_tensor_map(tile::BoxedBytes{.data = tiled.data,
                                                .rows = tiled.shape[0],
                                                .row_bytes = tiled.shape[1] * size_of(tiled.dtype),
                                                .box_rows = box_rows,
                                                .box_bytes = box_bytes});
}

PanelArgs arguments(Context& ctx, const Product& product, const PanelPlan& plan, void* scratch) {
  const Tensor x = *as_matrix(product.x);
  const tile::BoxedTensor boxes{.data = x.data,
                                .dtype = x.dtype,
                                .sizes = {x.shape[1], x.shape[0], 1, 1},
                                .strides = {x.strides[0], 0, 0},
                                .box_rows = plan.tokens};
  const Weight& weight = product.weight;
  const TileScales scales = tile_scales(weight);
  const ScaleMode mode = scale_mode(weight);
  PanelArgs args{
      .codes = map_of(weight.data, pair_bytes(weight.format), plan.panel_tiles),
      .block_shift = scales.shift,
      .tiles = static_cast<int>(weight.data.shape[0]),
      .panel_tiles = plan.panel_tiles,
      .x = {.matrix = MatrixRows(x),
            .rows = x.shape[0],
            .columns = static_cast<int>(x.shape[1]),
            .boxed = tile::can_be_boxed(boxes)},
      .work = work_of(plan, pairs_of(weight)),
      .parts = {.sums = static_cast<float4*>(scratch), .flags = nullptr},
      .output = {.finish = finish_of(product),
                 .row_scales = weight.row_scales.ptr<const float>(),
                 .rows = x.shape[0],
                 .features = weight.out_features,
                 .pairs = in_pairs(product.out) && in_pairs(product.residual),
                 .eights = size_of(product.out.dtype) == 2 && !product.residual.defined() &&
                           weight.out_features % 8 == 0 && rows_begin_on_vectors(product.out)}};
  if (plan.split == 0) {
    args.parts.flags =
        reinterpret_cast<std::uint32_t*>(ctx.cuda_state().counters() + State::kWorkCounters);
  }
  if (args.x.boxed) args.x_map = tile::make_tensor_map(boxes);
  // Of a tile's pair: the scales of 16 rows and as many blocks as it has, or one that others share.
  if (mode != ScaleMode::none) {
    const int blocks = mode == ScaleMode::fragments ? 2 << scales.shift : scales.shift == 0 ? 2 : 1;
    args.scale_bytes = blocks * kTileHeight * size_of(weight.scales.dtype);
    args.scale_shift = mode == ScaleMode::sums && scales.shift > 1 ? scales.shift - 1 : 0;
    args.scales = map_of(weight.scales, args.scale_bytes, plan.panel_tiles);
    if (scales.zeros) {
      args.zero_bytes = blocks * kTileHeight;
      args.zeros = map_of(weight.zeros, args.zero_bytes, plan.panel_tiles);
    }
  }
  return args;
}

}  // namespace

bool panels_take(Context& ctx, const Product& product) {
  const Tensor& x = product.x;
  const Weight& weight = product.weight;
  // The groups and zero points of int8 are rare: they take another road.
  const bool int8_by_rows =
      weight.format != Format::int8 || (weight.group == 0 && !weight.zeros.defined());
  const bool int4_in_groups = weight.format != Format::int4 || weight.group != 0;
  const auto aligned = [](const Tensor& part) {  // as tensor maps want it
    return reinterpret_cast<std::uintptr_t>(part.data) % 16 == 0;
  };
  return has_hopper_kernels(ctx.cuda_state().limits()) && !product.gated() &&
         made_of_matrices(product) && (x.dtype == DType::f16 || x.dtype == DType::bf16) &&
         weight.layout == WeightLayout::cuda_tiles && int8_by_rows && int4_in_groups &&
         weight.in_features <= kMostColumns && aligned(weight.data) && aligned(weight.scales) &&
         aligned(weight.zeros);
}

std::int64_t panels_scratch_bytes(Context& ctx, const Product& product, std::int64_t rows) {
  // With fewer rows tiles may be shared evenly where with so many they are not.
  const PanelPlan plan = plan_of(ctx, product.weight, rows, plan_even_panels);
  return std::int64_t{plan.blocks} * kPanelTiles * kTileHeight * plan.tokens * 4;
}

void multiply_panels(Context& ctx, const Product& product, void* scratch) {
  const PanelPlan plan = plan_of(ctx, product.weight, as_matrix(product.x)->shape[0], plan_panels);
  const PanelArgs args = arguments(ctx, product, plan, scratch);
  const Grid grid{.blocks = plan.blocks,
                  .threads = kPanelThreads,
                  .shared_bytes = 0,  // of the kernel that is chosen
                  .overlaps = true,
                  .cluster = std::max(1, plan.split)};
  const auto start = product.x.dtype == DType::f16 ? panels_f16 : panels_bf16;
  start(Launch(ctx, "linear"), grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
