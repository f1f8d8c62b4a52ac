#include "cuda/linear/portable/stream.h"

#include <algorithm>
#include <bit>

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

bool takes_kinds(const Product& product) {
  const Tensor& x = product.x;
  const Weight &weight = product.weight, &up = product.up;
  if (!made_of_matrices(product) || (x.dtype != DType::f16 && x.dtype != DType::bf16)) return false;
  if (weight.in_features == 0 || weight.out_features == 0) return false;
  if (!takes_weight(weight, x.dtype)) return false;
  return !product.gated() || (alike(weight, up) && takes_weight(up, x.dtype));
}

// ---- shared memory ------------------------------------------------------------------------------

// The most tiles of a block, so that their slots leave room for activations. With more tiles, there
// are more blocks than multiprocessors.
constexpr int kMostTiles = 32;
static_assert(kMostTiles * kTileHeight <= kStreamThreads);  // a thread for each feature

// The sizes that do not depend on the tokens.
struct Sizes {
  int tiles, blocks, pairs, most_chunks;
  std::int64_t block_tiles, fixed_bytes, limit_bytes;

  explicit Sizes(const LinearCall& call) {
    const Weight& weight = call.product.weight;
    const DeviceLimits& limits = state_of(call.ctx).limits();
    const int weights = call.product.gated() ? 2 : 1;
    pairs = row_pairs(weight);
    tiles = static_cast<int>((weight.out_features + kTileHeight - 1) / kTileHeight);
    const int all_tiles = limits.multiprocessors * kMostTiles;  // that fit into one wave
    const int waves = (tiles * weights + all_tiles - 1) / all_tiles;
    blocks = std::min(tiles, limits.multiprocessors * waves);
    block_tiles = std::int64_t{(tiles + blocks - 1) / blocks} * weights;
    fixed_bytes = block_tiles * (kTileHeight * 2 * 4 + std::int64_t{sizeof(SlotRange)}) +
                  (weight.format == Format::nf4 ? kNf4TableBytes : 0);
    most_chunks = weight.format == Format::dense ? 1 : pairs;
    limit_bytes = limits.shared_bytes;
  }

  int chunk_pairs(int chunks) const { return (pairs + chunks - 1) / chunks; }
  // The shared memory for `m` tokens, with activations in this many chunks.
  std::int64_t bytes(std::int64_t m, int chunks) const {
    const int chunk = chunk_pairs(chunks);
    const std::int64_t slot_bytes = slot_size(m > 8 || chunks > 1 ? 16 : 8) * 4;
    const std::int64_t slots =
        block_tiles * (chunks > 1 ? 2 : 1) * slot_bytes + kStreamWarps * slot_bytes;
    const std::int64_t one_bytes = m == 1 ? one_token_bytes(chunk) : 0;
    const std::int64_t x_bytes = std::max(one_bytes, m * x_pitch(chunk) * 2);
    return slots + fixed_bytes + x_bytes;
  }
  bool fits(std::int64_t m, int chunks) const { return bytes(m, chunks) <= limit_bytes; }
};

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

// ---- one token ----------------------------------------------------------------------------------

// Measured: from this many pairs to a warp on, the shorter loop makes up for the cost of loading x,
// which is higher with its sums than without.
constexpr int kIntegerPairs = 8, kE2m1Pairs = 2;

bool one_token_pays(const Product& product, const StreamPlan& plan) {
  const std::int64_t tiles = plan.tiles / plan.blocks * (product.gated() ? 2 : 1);
  const int least = product.weight.format == Format::int4 ? kIntegerPairs : kE2m1Pairs;
  return tiles * row_pairs(product.weight) >= least * kStreamWarps;
}

}  // namespace

bool takes_stream(const LinearCall& call) {
  const std::int64_t most = call.product.weight.format == Format::dense ? 8 : 16;
  if (call.m > most || !takes_kinds(call.product)) return false;
  // The answer changes only at 1, 4, 8 and 16 tokens.
  const std::int64_t m = call.m <= 1 ? 1 : call.m <= 4 ? 4 : call.m <= 8 ? 8 : 16;
  const Sizes sizes(call);
  return sizes.fits(m, 1) || sizes.fits(m, sizes.most_chunks);
}

bool has_one_token(const LinearCall& call, const StreamPlan& plan) {
  const Weight& weight = call.product.weight;
  return call.m == 1 && has_one_token_kernel(weight.format, scale_mode(weight)) &&
         plan.chunk_pairs == row_pairs(weight);
}

// All activations at once if there is room, else in as few chunks as possible.
StreamPlan plan_stream(const LinearCall& call) {
  const Sizes sizes(call);
  int chunks = 1;
  while (chunks < sizes.most_chunks && !sizes.fits(call.m, chunks)) ++chunks;
  StreamPlan plan{.tiles = sizes.tiles,
                  .blocks = sizes.blocks,
                  .chunk_pairs = sizes.chunk_pairs(chunks),
                  .shared_bytes = sizes.bytes(call.m, chunks)};
  plan.one_token = has_one_token(call, plan) && one_token_pays(call.product, plan);
  return plan;
}

void run_stream(const LinearCall& call, const StreamPlan& plan) {
  const Product& product = call.product;
  const Tensor x = *as_matrix(product.x);
  const auto m = static_cast<int>(call.m);
  const Weight& weight = product.weight;
  const StreamArgs args{
      .weights = {argument(weight), argument(product.gated() ? product.up : weight)},
      .matrices = product.gated() ? 2 : 1,
      .constant = weight.constant && (!product.gated() || product.up.constant),
      .block_tiles = plan.tiles / plan.blocks,
      .longer_blocks = plan.tiles % plan.blocks,
      .pairs = row_pairs(weight),
      .chunk_pairs = plan.chunk_pairs,
      .x = MatrixRows(x),
      .k = static_cast<int>(x.shape[1]),
      .m = m,
      .m_log2 = static_cast<int>(std::bit_width(static_cast<unsigned>(m) - 1)),
      .x_aligned = rows_begin_on_vectors(x) && x.shape[1] % 8 == 0,
      .one_token = plan.one_token,
      .epilogue = epilogue_of(product),
      .n = weight.out_features};
  const Grid grid{.blocks = plan.blocks,
                  .threads = kStreamThreads,
                  .shared_bytes = static_cast<int>(plan.shared_bytes),
                  .overlaps = state_of(call.ctx).limits().capability >= 90};
  const auto kernel = x.dtype == DType::f16 ? stream_f16 : stream_bf16;
  kernel(Launch(call.ctx, "linear"), grid, weight.format, scale_mode(weight), args);
}

}  // namespace tessera::cuda
