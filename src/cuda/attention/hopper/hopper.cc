#include "cuda/attention/hopper/hopper.h"

#include <algorithm>
#include <bit>

#include "core/half.h"
#include "cuda/attention/hopper/boxes.h"
#include "cuda/attention/hopper/launch.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {
namespace {

// Keys and values of the heads that blocks work on at one time: what stays in an L2 of 50 MB.
constexpr std::int64_t kSectionBytes = 32 << 20;

// The head dims with a kernel. Others run as the next larger one, filled up with zeros.
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

HopperMask kind_of(const MaskView& mask) {
  if (mask.kind == Mask::Kind::blocks) return HopperMask::pattern;
  return mask.left >= 0 || mask.right >= 0 ? HopperMask::band : HopperMask::full;
}

// Blocks have to be made of whole tiles, and to cover all rows.
bool takes_pattern(const MaskView& mask, std::int64_t n_q) {
  return mask.block % kHopperPatternBlock == 0 && mask.k_blocks <= kMostHopperRows / mask.block &&
         mask.q_blocks >= tiles_of(n_q, mask.block);
}

// The kernel that runs it, which may be one for other masks too.
HopperMask instance_for(HopperMask mask, int dim, std::int64_t n_k) {
  return mask == HopperMask::full && dim > 64 && n_k <= kHopperFewKeys ? HopperMask::band : mask;
}

// Without a mask all items are as long, and those of one head are best taken together.
std::int64_t section_heads(const AttentionCall& call, HopperMask mask) {
  if (mask == HopperMask::full) return 1;
  const std::int64_t head_bytes = std::max<std::int64_t>(1, call.n_k * call.dim * 4 / call.group);
  return std::clamp<std::int64_t>(kSectionBytes / head_bytes, 1, call.sequences * call.heads);
}

// The order in which to take a pattern's rows, so that blocks end together: those of most tiles
// first. Null: from the last one down, which is the same under a causal mask, and where the pattern
// has more rows than the call, so that its order names some that are not there.
const std::int32_t* order_of_rows(const MaskView& mask, std::int64_t row_tiles, int rows) {
  if (mask.right >= 0 || mask.q_blocks * (mask.block / rows) != row_tiles) return nullptr;
  return mask.longest_first;
}

HopperCall hopper_call(const AttentionCall& call, HopperMask mask, const HopperTiles& tiles,
                       int* counters) {
  const int rows = 64 * tiles.warpgroups;
  const std::int64_t heads = call.sequences * call.heads;
  const std::int64_t row_tiles = tiles_of(call.n_q, rows);
  return {
      .q = make_tensor_map(boxed(call, call.q, call.n_q, call.heads, 64)),
      .k = make_tensor_map(boxed(call, call.k, call.n_k, call.kv_heads, tiles.keys)),
      .v = make_tensor_map(boxed(call, call.v, call.n_k, call.kv_heads, tiles.keys)),
      .out = call.out.data,
      .out_batch_stride = call.out.batch_stride,
      .out_row_stride = call.out.row_stride,
      .out_head_stride = call.out.head_stride,
      .lse = call.lse,
      .lse_batch_stride = call.lse_strides[0],
      .lse_head_stride = call.lse_strides[1],
      .lse_row_stride = call.lse_strides[2],
      .batch = static_cast<int>(call.sequences),
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
      .section_heads = static_cast<int>(section_heads(call, mask)),
      .items = static_cast<int>(row_tiles * heads),
      .counters = counters,
      .offsets = call.mask.offsets,
      .indices = call.mask.indices,
      .longest_first = order_of_rows(call.mask, row_tiles, rows),
      .block_rows = static_cast<int>(call.mask.block / rows),
      .block_keys = static_cast<int>(call.mask.block / tiles.keys),
  };
}

}  // namespace

bool hopper_takes(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (!has_hopper_kernels(request.gpu)) return false;
  if (call.dtype != DType::f16 && call.dtype != DType::bf16) return false;
  if (call.q_offsets != nullptr || call.page_table != nullptr || call.capped || call.dropping ||
      call.inv_freq != nullptr || call.has_codes()) {
    return false;
  }
  if (call.mask.kind == Mask::Kind::blocks && !takes_pattern(call.mask, call.n_q)) return false;
  // The largest score is the largest product only where the scale is positive.
  if (!(call.scale > 0) || call.dim % 8 != 0 || call.dim > 256) return false;
  if (call.n_q > kMostHopperRows || call.n_k > kMostHopperRows || call.n_q < 1 || call.n_k < 1)
    return false;
  if (call.sequences * call.heads > kMostHopperRows / tiles_of(call.n_q, 64)) return false;
  return can_be_boxed(boxed(call, call.q, call.n_q, call.heads, 64)) &&
         can_be_boxed(boxed(call, call.k, call.n_k, call.kv_heads, 64)) &&
         can_be_boxed(boxed(call, call.v, call.n_k, call.kv_heads, 64)) &&
         can_be_boxed(boxed(call, call.out, call.n_q, call.heads, 64));  // 16 bytes at a time
}

AttentionPlan plan_hopper(const AttentionRequest& request) {
  AttentionPlan plan(request);
  const AttentionCall& call = plan.call;
  plan.hopper.dim = compiled_dim(call.dim);
  plan.hopper.mask = kind_of(call.mask);
  plan.hopper.instance = instance_for(plan.hopper.mask, plan.hopper.dim, call.n_k);
  return plan;
}

void run_hopper(Context& ctx, const AttentionPlan& plan, Workspace::Frame&) {
  State& state = state_of(ctx);
  const HopperTiles tiles = hopper_tiles(plan.hopper.dim, plan.hopper.instance);
  const HopperCall call = hopper_call(plan.call, plan.hopper.mask, tiles, state.counters());
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
