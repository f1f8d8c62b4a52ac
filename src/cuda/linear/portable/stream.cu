#include "cuda/linear/portable/stream.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "cuda/linear/portable/stream_kernels.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/vectors.h"

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

// ---- shared memory ------------------------------------------------------------------------------

// Tiles of a block, so that their slots leave room for activations; where there are more tiles,
// there are more blocks than multiprocessors.
constexpr int kMostTiles = 32;

struct Plan {
  int tiles, grid, chunk_pairs;
  std::int64_t shared_bytes;
};

// For `rows` rows of x: all of their columns at once where there is room, or as few chunks of them
// as there can be.
std::optional<Plan> plan_of(Context& ctx, const Product& product, std::int64_t rows) {
  const Weight& weight = product.weight;
  const DeviceLimits& limits = state_of(ctx).limits();
  const int parts = product.gated() ? 2 : 1, pairs = row_pairs(weight);
  const auto tiles = static_cast<int>((weight.out_features + kTileHeight - 1) / kTileHeight);
  const int all_tiles = limits.multiprocessors * kMostTiles;  // that fit into one wave
  const int waves = (tiles * parts + all_tiles - 1) / all_tiles;
  const int grid = std::min(tiles, limits.multiprocessors * waves);

  const std::int64_t block_tiles = std::int64_t{(tiles + grid - 1) / grid} * parts;
  const std::int64_t of_rows = block_tiles * (kTileHeight * 2 * 4 + sizeof(SlotRange));
  const std::int64_t table = weight.format == Format::nf4 ? kNf4TableBytes : 0;
  const int most_chunks = weight.format == Format::dense ? 1 : pairs;
  for (int chunks = 1; chunks <= most_chunks; ++chunks) {
    const int chunk = (pairs + chunks - 1) / chunks;
    const std::int64_t slot_bytes = slot_size(rows > 8 || chunks > 1 ? 16 : 8) * 4;
    const std::int64_t slots =
        block_tiles * (chunks > 1 ? 2 : 1) * slot_bytes + kStreamWarps * slot_bytes;
    const std::int64_t row_bytes = rows == 1 ? stream_row_bytes(chunk) : 0;
    const std::int64_t x_bytes = std::max(row_bytes, rows * x_pitch(chunk) * 2);
    const std::int64_t bytes = slots + of_rows + table + x_bytes;
    if (bytes <= limits.shared_bytes) return Plan{tiles, grid, chunk, bytes};
  }
  return std::nullopt;
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

void start(Context& ctx, const Product& product, const Plan& plan, bool one_row) {
  const Tensor x = *as_matrix(product.x);
  const auto rows = static_cast<int>(x.shape[0]);
  const Weight& weight = product.weight;
  const StreamArgs args{
      .weights = {argument(weight), argument(product.gated() ? product.up : weight)},
      .parts = product.gated() ? 2 : 1,
      .block_tiles = plan.tiles / plan.grid,
      .longer_blocks = plan.tiles % plan.grid,
      .pairs = row_pairs(weight),
      .chunk_pairs = plan.chunk_pairs,
      .x = MatrixRows(x),
      .columns = static_cast<int>(x.shape[1]),
      .rows = rows,
      .rows_log2 = static_cast<int>(std::bit_width(static_cast<unsigned>(rows) - 1)),
      .x_aligned = rows_begin_on_vectors(x) && x.shape[1] % 8 == 0,
      .one_row = one_row,
      .finish = finish_of(product),
      .out_features = weight.out_features};
  const Grid grid{.blocks = plan.grid,
                  .threads = kStreamThreads,
                  .shared_bytes = static_cast<int>(plan.shared_bytes),
                  .overlaps = state_of(ctx).limits().capability >= 90};
  const auto kernel = x.dtype == DType::f16 ? stream_f16 : stream_bf16;
  kernel(Launch(ctx, "linear"), grid, weight.format, scale_mode(weight), args);
}

// ---- one row ------------------------------------------------------------------------------------

bool has_row(const Product& product, const Plan& plan) {
  return as_matrix(product.x)->shape[0] == 1 &&
         has_row_kernel(product.weight.format, scale_mode(product.weight)) &&
         plan.chunk_pairs == row_pairs(product.weight);
}

// Measured: from so many pairs of a warp on the shorter loop makes up for what bringing x costs,
// with its sums more than without.
constexpr int kIntegerPairs = 8, kE2m1Pairs = 2;

bool row_pays(const Product& product, const Plan& plan) {
  const std::int64_t tiles = plan.tiles / plan.grid * (product.gated() ? 2 : 1);
  const int least = product.weight.format == Format::int4 ? kIntegerPairs : kE2m1Pairs;
  return tiles * row_pairs(product.weight) >= least * kStreamWarps;
}

}  // namespace

std::int64_t stream_rows_at_most(Context& ctx, const Product& product) {
  const Tensor& x = product.x;
  if (!made_of_matrices(product) || (x.dtype != DType::f16 && x.dtype != DType::bf16)) return 0;
  const Weight &weight = product.weight, &up = product.up;
  if (weight.in_features == 0 || !takes_weight(weight, x.dtype)) return 0;
  if (product.gated() && !(alike(weight, up) && takes_weight(up, x.dtype))) return 0;
  // Measured: with dense weights the library is faster from 8 rows on.
  for (const std::int64_t rows : {weight.format == Format::dense ? 4 : 16, 8, 4, 1}) {
    if (plan_of(ctx, product, rows)) return rows;
  }
  return 0;
}

void stream(Context& ctx, const Product& product) {
  const Plan plan = plan_of(ctx, product, as_matrix(product.x)->shape[0]).value();
  start(ctx, product, plan, has_row(product, plan) && row_pays(product, plan));
}

bool has_stream_row(Context& ctx, const Product& product) {
  if (stream_rows_at_most(ctx, product) == 0) return false;
  const std::optional<Plan> plan = plan_of(ctx, product, 1);
  return plan && has_row(product, *plan);
}

void stream_row(Context& ctx, const Product& product) {
  start(ctx, product, plan_of(ctx, product, 1).value(), true);
}

}  // namespace tessera::cuda
