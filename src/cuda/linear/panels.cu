// The host's side of panels.cuh, and the packing of activations.
#include "cuda/linear/panels.h"

#include <algorithm>

#include "cuda/attention/hopper.h"
#include "cuda/linear/panel_kernels.h"
#include "cuda/linear/scales.cuh"
#include "cuda/state.h"
#include "cuda/tile/tensor_map.h"
#include "cuda/vectors.h"

namespace tessera::cuda {
namespace {

// Few enough, with 32 registers each, to leave room for a block of the kernel behind.
constexpr int kThreads = 128;

// ---- activations --------------------------------------------------------------------------------

struct PackArgs {
  MatrixRows x;
  std::int64_t rows, columns;
  bool pairs_aligned;  // two numbers may be read at once
  int slabs, tokens;
  std::int64_t parts;
  uint4* to;
  std::uint32_t* flags;  // of the kernel behind, to be set to zero
  int flag_count;
};

// A thread for each 16 bytes of the result: of token m and a slab, part p of 8. In memory it lies
// at part p ^ (m % 8). Its eight numbers are those that step p / 2 of the tensor cores takes, half
// p % 2: of each lane t two neighbours, at column 16 t + 4 (p / 2) + 2 (p % 2).
template <typename T>
__global__ void __launch_bounds__(kThreads, 16) pack_panels(PackArgs args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = thread; i < args.flag_count; i += step) args.flags[i] = 0;
  for (std::int64_t i = thread; i < args.parts; i += step) {
    const int part = static_cast<int>(i % 8);
    const std::int64_t row = i / 8, token = row % args.tokens,
                       slab = row / args.tokens % args.slabs;
    const std::int64_t m = row / args.tokens / args.slabs * args.tokens + token;
    const int p = part ^ static_cast<int>(token % 8);
    std::uint32_t pairs[4] = {};
    if (m < args.rows) {
      const std::int64_t first = slab * kSlab + p / 2 * 4 + p % 2 * 2;
      const T* from = args.x.row<const T>(m) + first;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        if (args.pairs_aligned && first + 16 * t + 1 < args.columns) {
          pairs[t] = *reinterpret_cast<const std::uint32_t*>(from + 16 * t);
        } else {
          const std::uint32_t low = first + 16 * t < args.columns ? from[16 * t].bits : 0;
          const std::uint32_t high = first + 16 * t + 1 < args.columns ? from[16 * t + 1].bits : 0;
          pairs[t] = high << 16 | low;
        }
      }
    }
    args.to[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

// So that all pairs that are shared, of less than two tiles to a multiprocessor, count in 31 bits.
constexpr std::int64_t kMostColumns = 1 << 26;

// ---- how much there is --------------------------------------------------------------------------

struct Sizes {
  int tokens, token_blocks, panels, pairs;
  int blocks;  // of the grid
  std::int64_t packed_bytes, flag_bytes, part_bytes;

  std::int64_t bytes() const { return packed_bytes + flag_bytes + part_bytes; }
};

Sizes sizes_of(Context& ctx, const Weight& weight, std::int64_t rows) {
  Sizes sizes{};
  sizes.tokens = panel_tokens(rows);
  sizes.token_blocks = static_cast<int>((rows + sizes.tokens - 1) / sizes.tokens);
  sizes.panels = static_cast<int>((weight.data.shape[0] + kPanelTiles - 1) / kPanelTiles);
  sizes.pairs = pairs_of(weight);
  // A tile's sums are added up by one block: no more than five parts, of at least four pairs.
  const std::int64_t tiles = std::int64_t{sizes.panels} * sizes.token_blocks;
  const std::int64_t least = std::max(4, (sizes.pairs + 3) / 4);
  const std::int64_t most = std::max(tiles, tiles * sizes.pairs / least);
  sizes.blocks =
      static_cast<int>(std::min<std::int64_t>(most, ctx.cuda_state().limits().multiprocessors));
  sizes.packed_bytes = std::int64_t{sizes.token_blocks} * sizes.tokens * sizes.pairs * (2 * kPair);
  sizes.flag_bytes = (std::int64_t{sizes.blocks} * kPanelWarps * 4 + 15) / 16 * 16;
  sizes.part_bytes = std::int64_t{sizes.blocks} * kPanelRows * sizes.tokens * 4;
  return sizes;
}

PanelWork work_of(const Sizes& sizes) {
  const int tiles = sizes.panels * sizes.token_blocks;
  // Two rounds or less are shared.
  const int rounds = tiles / sizes.blocks;
  const int whole = tiles % sizes.blocks == 0 ? tiles : std::max(0, rounds - 1) * sizes.blocks;
  return {.pairs = sizes.pairs,
          .token_blocks = sizes.token_blocks,
          .whole_tiles = whole,
          .run_pairs = (tiles - whole) * sizes.pairs / sizes.blocks,
          .longer_runs = (tiles - whole) * sizes.pairs % sizes.blocks};
}

// One to a multiprocessor, so that the kernel behind can start beside it; but where there is much
// to do, as many as there can be.
std::int64_t packing_blocks(Context& ctx, std::int64_t parts) {
  const std::int64_t blocks = (parts + kThreads - 1) / kThreads;
  const int few = ctx.cuda_state().limits().multiprocessors;
  return blocks <= 4 * few ? std::min<std::int64_t>(blocks, few) : blocks;
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
CUtensorMap map_of(const Tensor& tiled, int box_bytes) {
  return tile::make_tensor_map(tile::BoxedBytes{.data = tiled.data,
                                                .rows = tiled.shape[0],
                                                .row_bytes = tiled.shape[1] * size_of(tiled.dtype),
                                                .box_rows = kPanelTiles,
                                                .box_bytes = box_bytes});
}

PanelArgs arguments(const Product& product, const Sizes& sizes, char* scratch) {
  const Weight& weight = product.weight;
  const TileScales scales = tile_scales(weight);
  const ScaleMode mode = scale_mode(weight);
  PanelArgs args{
      .codes = map_of(weight.data, pair_bytes(weight.format)),
      .block_shift = scales.shift,
      .tiles = static_cast<int>(weight.data.shape[0]),
      .x = scratch,
      .work = work_of(sizes),
      .parts = {.sums = reinterpret_cast<float4*>(scratch + sizes.packed_bytes + sizes.flag_bytes),
                .flags = reinterpret_cast<std::uint32_t*>(scratch + sizes.packed_bytes)},
      .output = {.finish = finish_of(product),
                 .row_scales = weight.row_scales.ptr<const float>(),
                 .rows = as_matrix(product.x)->shape[0],
                 .features = weight.out_features,
                 .pairs = in_pairs(product.out) && in_pairs(product.residual),
                 .eights = size_of(product.out.dtype) == 2 && !product.residual.defined() &&
                           weight.out_features % 8 == 0 && rows_begin_on_vectors(product.out)}};
  // Of a tile's pair: the scales of 16 rows and as many blocks as it has, or one that others share.
  if (mode != ScaleMode::none) {
    const int blocks = mode == ScaleMode::fragments ? 2 << scales.shift : scales.shift == 0 ? 2 : 1;
    args.scale_bytes = blocks * kTileHeight * size_of(weight.scales.dtype);
    args.scale_shift = mode == ScaleMode::sums && scales.shift > 1 ? scales.shift - 1 : 0;
    args.scales = map_of(weight.scales, args.scale_bytes);
    if (scales.zeros) {
      args.zero_bytes = blocks * kTileHeight;
      args.zeros = map_of(weight.zeros, args.zero_bytes);
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
  return sizes_of(ctx, product.weight, rows).bytes();
}

void multiply_panels(Context& ctx, const Product& product, void* scratch) {
  const Tensor x = *as_matrix(product.x);
  const Sizes sizes = sizes_of(ctx, product.weight, x.shape[0]);
  const PanelArgs args = arguments(product, sizes, static_cast<char*>(scratch));

  const Launch launch(ctx, "linear");
  const PackArgs packing{.x = MatrixRows(x),
                         .rows = x.shape[0],
                         .columns = x.shape[1],
                         .pairs_aligned = in_pairs(x),
                         .slabs = 2 * sizes.pairs,
                         .tokens = sizes.tokens,
                         .parts = sizes.packed_bytes / 16,
                         .to = static_cast<uint4*>(scratch),
                         .flags = args.parts.flags,
                         .flag_count = sizes.blocks * kPanelWarps};
  const bool f16 = x.dtype == DType::f16;
  launch(f16 ? pack_panels<Half> : pack_panels<BFloat16>,
         {.blocks = packing_blocks(ctx, packing.parts), .threads = kThreads, .overlaps = true},
         packing);
  const Grid grid{.blocks = sizes.blocks,
                  .threads = kPanelThreads,
                  .shared_bytes = 0,  // of the kernel that is chosen
                  .overlaps = true};
  const auto start = f16 ? panels_f16 : panels_bf16;
  start(launch, grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
