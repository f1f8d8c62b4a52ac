#include "cuda/linear/stream.h"

#include <algorithm>

#include "cuda/linear/stream_kernels.h"
#include "cuda/state.h"
#include "cuda/vectors.h"

namespace tessera::cuda {
namespace {

bool takes_weight(const Weight& weight, DType x) {
  if (weight.out_features > (1 << 30) || weight.in_features > (1 << 30)) return false;
  if (weight.layout == WeightLayout::cuda_tiles) return true;
  return weight.format == Format::dense && weight.data.dtype == x &&
         weight.in_features % kPair == 0 && rows_begin_on_vectors(weight.data);
}

int row_pairs(const Weight& weight) {
  if (weight.format == Format::dense) return static_cast<int>(weight.in_features / kPair);
  return pairs_of(weight);
}

// ---- what it takes ------------------------------------------------------------------------------

struct Plan {
  int tiles, grid;
  std::int64_t fixed_bytes, row_bytes;  // of shared memory
};

Plan plan_of(Context& ctx, const Product& product, int columns) {
  const Weight& weight = product.weight;
  const auto tiles = static_cast<int>((weight.out_features + kTileHeight - 1) / kTileHeight);
  const int grid = std::min(tiles, ctx.cuda_state().limits().multiprocessors);
  const int tiles_of_block = (tiles + grid - 1) / grid * (product.gated() ? 2 : 1);
  const std::int64_t slots = std::int64_t{tiles_of_block + kStreamWarps} * slot_size(columns) * 4;
  return {.tiles = tiles,
          .grid = grid,
          .fixed_bytes = slots + (weight.format == Format::nf4 ? kNf4TableBytes : 0),
          .row_bytes = (row_pairs(weight) * std::int64_t{kPair} + 8) * 2};
}

// Rows that pass through together, up to 8 or 16.
std::int64_t rows_at_once(Context& ctx, const Product& product, int columns) {
  const Plan plan = plan_of(ctx, product, columns);
  const std::int64_t room = ctx.cuda_state().limits().shared_bytes - plan.fixed_bytes;
  return std::min<std::int64_t>(columns, room / plan.row_bytes);
}

// ---- arguments ----------------------------------------------------------------------------------

StreamWeight argument(const Weight& weight) {
  StreamWeight result{.codes = weight.data.data};
  if (weight.format == Format::dense) {
    result.stride = weight.data.strides[0];
    return result;
  }
  result.scales = tile_scales(weight);
  result.row_scales = weight.row_scales.ptr<const float>();
  return result;
}

}  // namespace

std::int64_t stream_rows_at_most(Context& ctx, const Product& product) {
  const Tensor& x = product.x;
  if (!made_of_matrices(product) || (x.dtype != DType::f16 && x.dtype != DType::bf16)) return 0;
  const Weight &weight = product.weight, &up = product.up;
  if (weight.in_features == 0 || !takes_weight(weight, x.dtype)) return 0;
  if (product.gated()) {
    const bool alike = up.format == weight.format && up.layout == weight.layout &&
                       up.group == weight.group && up.zeros.defined() == weight.zeros.defined();
    if (!alike || !takes_weight(up, x.dtype)) return 0;
  }
  if (rows_at_once(ctx, product, 8) <= 0) return 0;
  if (weight.format == Format::dense) return 4;  // measured: the library is faster from 8 rows on
  return std::max<std::int64_t>(8, rows_at_once(ctx, product, 16));
}

void stream(Context& ctx, const Product& product) {
  const Tensor x = *as_matrix(product.x);
  const int columns = x.shape[0] > 8 ? 16 : 8;
  const Plan plan = plan_of(ctx, product, columns);
  const std::int64_t at_once = rows_at_once(ctx, product, columns);
  const Weight& weight = product.weight;
  StreamArgs args{.weights = {argument(weight), argument(product.gated() ? product.up : weight)},
                  .parts = product.gated() ? 2 : 1,
                  .tiles = plan.tiles,
                  .pairs = row_pairs(weight),
                  .x = MatrixRows(x),
                  .columns = static_cast<int>(x.shape[1]),
                  .x_aligned = rows_begin_on_vectors(x) && x.shape[1] % 8 == 0,
                  .finish = finish_of(product),
                  .out_features = weight.out_features};
  const ScaleMode mode = scale_mode(weight);
  const Launch launch(ctx, "linear");
  for (std::int64_t row = 0; row < x.shape[0]; row += at_once) {
    args.first_row = row;
    args.rows = static_cast<int>(std::min(at_once, x.shape[0] - row));
    const Grid grid{.blocks = plan.grid,
                    .threads = kStreamThreads,
                    .shared_bytes = static_cast<int>(plan.fixed_bytes + args.rows * plan.row_bytes),
                    .overlaps = ctx.cuda_state().limits().capability >= 90};
    const auto start = product.x.dtype == DType::f16 ? stream_f16 : stream_bf16;
    start(launch, grid, weight.format, mode, args);
  }
}

}  // namespace tessera::cuda
