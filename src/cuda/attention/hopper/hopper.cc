#include "cuda/attention/hopper/hopper.h"

#include <algorithm>
#include <numeric>

#include "core/half.h"
#include "cuda/attention/hopper/boxes.h"
#include "cuda/attention/hopper/launch.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {
namespace {

// Keys and values of the heads that blocks work on at one time: as much as stays in an L2 cache of
// 50 MB.
constexpr std::int64_t kSectionBytes = 32 << 20;

// The head dims with a kernel. Others run as the next larger one, padded with zeros.
constexpr int compiled_dim(int dim) {
  return dim <= 64 ? 64 : dim <= 80 ? 80 : dim <= 96 ? 96 : dim <= 128 ? 128 : 256;
}
template <typename F>
void with_compiled_dim(int dim, F&& fn) {
  switch (dim) {
    case 64:
      return fn(std::integral_constant<int, 64>());
    case 80:
      return fn(std::integral_constant<int, 80>());
    case 96:
      return fn(std::integral_constant<int, 96>());
    case 128:
      return fn(std::integral_constant<int, 128>());
    default:
      return fn(std::integral_constant<int, 256>());
  }
}

// Whether sequences have different lengths, or keys in pages.
bool is_ragged(const AttentionCall& call) {
  return call.q_offsets != nullptr || call.page_table != nullptr;
}

tile::BoxedTensor boxed_queries(const AttentionCall& call, const HeadRows& rows) {
  tile::BoxedTensor queries = boxed(call, rows, call.n_q, call.heads, 64);
  if (call.q_offsets != nullptr) queries.sizes[3] = 1;
  return queries;
}

tile::BoxedTensor boxed_keys(const AttentionCall& call, const HeadRows& rows, int box_rows) {
  tile::BoxedTensor keys = boxed(call, rows, call.n_k, call.kv_heads, box_rows);
  if (call.k_offsets != nullptr) keys.sizes[3] = 1;
  if (call.page_table == nullptr) return keys;
  keys.sizes[1] = call.page_size;
  keys.sizes[3] = call.pool_pages;
  keys.nan_outside = true;  // a page that is not in the pool
  return keys;
}

// The rows of a page in one copy: as many as divide both a page and every key tile.
int page_box(const AttentionCall& call) { return static_cast<int>(std::gcd(call.page_size, 64)); }

HopperMask kind_of(const AttentionCall& call) {
  const MaskView& mask = call.mask;
  if (is_ragged(call)) return HopperMask::ragged;
  if (mask.kind == Mask::Kind::blocks) return HopperMask::pattern;
  return mask.left >= 0 || mask.right >= 0 ? HopperMask::band : HopperMask::full;
}

// Blocks must be whole tiles and cover all rows.
bool takes_pattern(const MaskView& mask, std::int64_t n_q) {
  return mask.block % kHopperPatternBlock == 0 && mask.k_blocks <= kMostHopperRows / mask.block &&
         mask.q_blocks >= tiles_of(n_q, mask.block);
}

// The instance that runs the mask, which may be a more general one.
HopperMask instance_for(HopperMask mask, int dim, std::int64_t n_k) {
  return mask == HopperMask::full && dim > 64 && n_k <= kHopperFewKeys ? HopperMask::band : mask;
}

// Without a mask all items take equally long, and the items of one head are best taken together.
std::int64_t section_heads(const AttentionCall& call, HopperMask mask) {
  if (mask == HopperMask::full) return 1;
  const std::int64_t head_bytes = std::max<std::int64_t>(1, call.n_k * call.dim * 4 / call.group);
  const std::int64_t all = mask == HopperMask::ragged ? call.heads : call.sequences * call.heads;
  return std::clamp<std::int64_t>(kSectionBytes / head_bytes, 1, all);
}

// The row tiles of a head, in one sequence or, for a ragged batch, the most in all sequences.
std::int64_t row_tiles_of(const AttentionCall& call, int rows) {
  if (call.q_offsets != nullptr) return call.n_q / rows + call.sequences;
  return tiles_of(call.n_q, rows) * (is_ragged(call) ? call.sequences : 1);
}

// The order in which to take a pattern's rows, so that blocks end together: rows with most tiles
// first. Null: from the last row down. That is the same order under a causal mask. It is also used
// if the pattern has more rows than the call, because the pattern's order would name rows that do
// not exist.
const std::int32_t* order_of_rows(const MaskView& mask, std::int64_t row_tiles, int rows) {
  if (mask.right >= 0 || mask.q_blocks * (mask.block / rows) != row_tiles) return nullptr;
  return mask.longest_first;
}

HopperCall hopper_call(const AttentionCall& call, const HopperPlan& plan, const HopperTiles& tiles,
                       int* counters) {
  const int rows = 64 * tiles.warpgroups;
  const bool paged = call.page_table != nullptr;
  const int key_box = paged ? page_box(call) : tiles.keys;
  const std::int64_t batch = is_ragged(call) ? 1 : call.sequences;
  const std::int64_t row_tiles = row_tiles_of(call, rows);
  return {
      .q = make_tensor_map(boxed_queries(call, call.q)),
      .k = make_tensor_map(boxed_keys(call, call.k, key_box)),
      .v = make_tensor_map(boxed_keys(call, call.v, key_box)),
      .out = call.out.data,
      .out_batch_stride = call.out.batch_stride,
      .out_row_stride = call.out.row_stride,
      .out_head_stride = call.out.head_stride,
      .lse = call.lse,
      .lse_batch_stride = call.lse_strides[0],
      .lse_head_stride = call.lse_strides[1],
      .lse_row_stride = call.lse_strides[2],
      .batch = static_cast<int>(batch),
      .heads = static_cast<int>(call.heads),
      .group = static_cast<int>(call.group),
      .dim = call.dim,
      .n_q = static_cast<int>(call.n_q),
      .n_k = static_cast<int>(call.n_k),
      .left = band_side(call.mask.left),
      .right = band_side(call.mask.right),
      .n_sink = band_side(call.mask.n_sink),
      .exponent_scale = call.q_factor,
      .row_tiles = static_cast<int>(row_tiles),
      .section_heads = static_cast<int>(section_heads(call, plan.mask)),
      .items = static_cast<int>(row_tiles * batch * call.heads),
      .counters = counters,
      .offsets = call.mask.offsets,
      .indices = call.mask.indices,
      .longest_first = order_of_rows(call.mask, row_tiles, rows),
      .block_rows = static_cast<int>(call.mask.block / rows),
      .block_keys = static_cast<int>(call.mask.block / tiles.keys),
      .q_offsets = call.q_offsets,
      .k_offsets = call.k_offsets,
      .lengths = call.lengths,
      .page_table = call.page_table,
      .table_stride = call.table_stride,
      .sequences = static_cast<int>(call.sequences),
      .page_size = static_cast<int>(call.page_size),
      .box_rows = key_box,
      .few_rows = plan.few_rows,
  };
}

// For sequences of different lengths, or in pages. A hole would shift keys across the boxes of a
// page, and boxes of fewer than eight rows do not fit the swizzle. The padding from a narrower head
// to a compiled head dim would be NaN.
bool takes_ragged(const AttentionCall& call) {
  if (call.mask.kind == Mask::Kind::blocks || call.dim != compiled_dim(call.dim)) return false;
  if (call.sequences < 1 || row_tiles_of(call, 128) > kMostHopperRows / call.heads) return false;
  if (call.page_table == nullptr) return true;
  return call.holes == nullptr && page_box(call) >= 8 && call.page_size <= kMostHopperRows;
}

}  // namespace

bool hopper_takes(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (!has_hopper_kernels(request.gpu)) return false;
  if (call.dtype != DType::f16 && call.dtype != DType::bf16) return false;
  if (call.capped || call.dropping || call.inv_freq != nullptr || call.has_codes()) return false;
  if (is_ragged(call) && !takes_ragged(call)) return false;
  if (call.mask.kind == Mask::Kind::blocks && !takes_pattern(call.mask, call.n_q)) return false;
  // The largest score is the largest product only if the scale is positive.
  if (!(call.scale > 0) || call.dim % 8 != 0 || call.dim > 256) return false;
  if (call.n_q > kMostHopperRows || call.n_k > kMostHopperRows || call.n_q < 1 || call.n_k < 1)
    return false;
  if (call.sequences * call.heads > kMostHopperRows / tiles_of(call.n_q, 64)) return false;
  return can_be_boxed(boxed_queries(call, call.q)) && can_be_boxed(boxed_keys(call, call.k, 64)) &&
         can_be_boxed(boxed_keys(call, call.v, 64)) &&
         can_be_boxed(boxed_queries(call, call.out));  // 16 bytes at a time
}

bool hopper_pays(const AttentionRequest& request) {
  if (request.call.q_offsets != nullptr) return false;  // cuda.hopper+split
  if (is_ragged(request.call)) return request.rows() > kFewRows;
  return request.call.n_q >= kHopperQueries;
}

AttentionPlan plan_hopper(const AttentionRequest& request) {
  AttentionPlan plan(request);
  const AttentionCall& call = plan.call;
  plan.hopper.dim = compiled_dim(call.dim);
  plan.hopper.mask = kind_of(call);
  plan.hopper.instance = instance_for(plan.hopper.mask, plan.hopper.dim, call.n_k);
  return plan;
}

void run_hopper(Context& ctx, const AttentionPlan& plan, Workspace::Frame&) {
  State& state = state_of(ctx);
  const HopperTiles tiles = hopper_tiles(plan.hopper.dim, plan.hopper.instance);
  const HopperCall call = hopper_call(plan.call, plan.hopper, tiles, state.counters());
  const int blocks = std::min(tiles.blocks * state.limits().multiprocessors, call.items);
  const Launch launch(ctx, "attention");
  with_compiled_dim(plan.hopper.dim, [&](auto dim) {
    if (plan.call.dtype == DType::f16) {
      launch_hopper_kernel<Half, dim()>(launch, call, plan.hopper.instance, blocks);
    } else {
      launch_hopper_kernel<BFloat16, dim()>(launch, call, plan.hopper.instance, blocks);
    }
  });
}

}  // namespace tessera::cuda
