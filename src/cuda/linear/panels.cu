// The host's side of panels.cuh, and the packing of activations.
#include "cuda/linear/panels.h"

#include "cuda/attention/hopper.h"
#include "cuda/linear/panel_kernels.h"
#include "cuda/linear/scales.cuh"
#include "cuda/state.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// ---- activations --------------------------------------------------------------------------------

// A thread for each 16 bytes of the result: of token m and a slab, part p of 8. In memory it lies
// at part p ^ (m % 8). Its eight numbers are those that step p / 2 of the tensor cores takes, half
// p % 2: of each lane t two neighbours, at column 16 t + 4 (p / 2) + 2 (p % 2).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_panels(MatrixRows x, std::int64_t rows, std::int64_t columns, int slabs, int tokens,
                std::int64_t parts, uint4* to) {
  let_next_kernel_start();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < parts; i += step) {
    const int part = static_cast<int>(i % 8);
    const std::int64_t token = i / 8 % tokens, slab = i / 8 / tokens % slabs;
    const std::int64_t m = i / 8 / tokens / slabs * tokens + token;
    const int p = part ^ static_cast<int>(token % 8);
    std::uint32_t pairs[4] = {};
    if (m < rows) {
      const T* row = x.row<const T>(m) + slab * kSlab + p / 2 * 4 + p % 2 * 2;
      const std::int64_t first = slab * kSlab + p / 2 * 4 + p % 2 * 2;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const std::uint32_t low = first + 16 * t < columns ? row[16 * t].bits : 0;
        const std::uint32_t high = first + 16 * t + 1 < columns ? row[16 * t + 1].bits : 0;
        pairs[t] = high << 16 | low;
      }
    }
    to[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

// ---- arguments ----------------------------------------------------------------------------------

std::int64_t token_blocks(std::int64_t rows) {
  const int tokens = panel_tokens(rows);
  return (rows + tokens - 1) / tokens;
}

std::int64_t packed_bytes(const Weight& weight, std::int64_t rows) {
  return token_blocks(rows) * panel_tokens(rows) * pairs_of(weight) * (2 * kPair);
}

PanelArgs arguments(const Product& product, const Tensor& x, const void* packed) {
  const Weight& weight = product.weight;
  const TileScales scales = tile_scales(weight);
  const ScaleMode mode = scale_mode(weight);
  PanelArgs args{.codes = weight.data.ptr<const char>(),
                 .scales = scales,
                 .row_scales = weight.row_scales.ptr<const float>(),
                 .tiles = static_cast<int>(weight.data.shape[0]),
                 .pairs = pairs_of(weight),
                 .x = static_cast<const char*>(packed),
                 .rows = x.shape[0],
                 .out_features = weight.out_features,
                 .finish = finish_of(product)};
  // Of a tile's pair: the scales of 16 rows and as many blocks as it has, or one that others share.
  if (mode != ScaleMode::none) {
    const int blocks = mode == ScaleMode::fragments ? 2 << scales.shift : scales.shift == 0 ? 2 : 1;
    args.scale_bytes = blocks * kTileHeight * size_of(weight.scales.dtype);
    args.zero_bytes = scales.zeros ? blocks * kTileHeight : 0;
    args.scale_shift = mode == ScaleMode::sums && scales.shift > 1 ? scales.shift - 1 : 0;
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
  return has_hopper_kernels(ctx.cuda_state().limits()) && !product.gated() &&
         made_of_matrices(product) && (x.dtype == DType::f16 || x.dtype == DType::bf16) &&
         weight.layout == WeightLayout::cuda_tiles && int8_by_rows && int4_in_groups;
}

std::int64_t panels_scratch_bytes(const Product& product, std::int64_t rows) {
  return packed_bytes(product.weight, rows);
}

void multiply_panels(Context& ctx, const Product& product, void* scratch) {
  const Tensor x = *as_matrix(product.x);
  const std::int64_t rows = x.shape[0];
  const std::int64_t bytes = packed_bytes(product.weight, rows);
  auto* packed = static_cast<uint4*>(scratch);
  const PanelArgs args = arguments(product, x, packed);

  const Launch launch(ctx, "linear");
  const std::int64_t parts = bytes / 16;
  const Grid packing{.blocks = (parts + kThreads - 1) / kThreads, .threads = kThreads};
  const bool f16 = x.dtype == DType::f16;
  launch(f16 ? pack_panels<Half> : pack_panels<BFloat16>, packing, MatrixRows(x), rows, x.shape[1],
         args.pairs * 2, panel_tokens(rows), parts, packed);
  const Grid grid{.blocks = (args.tiles + kPanelTiles - 1) / kPanelTiles * token_blocks(rows),
                  .threads = 0,  // of the kernel that is chosen
                  .overlaps = true};
  const auto start = f16 ? panels_f16 : panels_bf16;
  start(launch, grid, product.weight.format, scale_mode(product.weight), args);
}

}  // namespace tessera::cuda
