#include "cuda/attention/hopper/decode/decode.h"

#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/half.h"
#include "cuda/attention/hopper/boxes.h"
#include "cuda/attention/hopper/decode/launch.h"
#include "cuda/attention/portable/split_and_mma.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda::hopper_decode {
namespace {

// From this many keys in all sequences on, this kernel is faster than cuda.split. It has more to do
// before the first key arrives.
constexpr std::int64_t kLeastKeys = 16384;
// The same for 8 bits, counted in codes of keys. Measured on an H200: 2^23 of them (1 x 8192, 8
// heads of 128) take 17% less than by cuda.split.codes, 2^26 (16 x 4096) 49% less.
constexpr std::int64_t kLeastCodes = 1 << 23;

// Bytes in flight to a multiprocessor. Fewer do not keep memory busy, and more make it slower:
// measured on an H200 (docs/notebook/attention_hopper_decode.md).
constexpr int kInFlight = 68 << 10;

// The bytes of a row of a key head.
int row_bytes(const AttentionCall& call) {
  return call.dim * static_cast<int>(size_of(call.stored));
}
// Key heads that share a block.
int heads_of_block(const AttentionCall& call) { return decode_heads(row_bytes(call)); }

// The keys of one copy: a step's, or as many as are sure to lie in one page.
int unit_of(const AttentionCall& call) {
  int unit = decode_step_keys(call.has_codes());
  while (call.page_table != nullptr && call.page_size % unit != 0) unit /= 2;
  return unit;
}
bool copies_whole_steps(const AttentionCall& call) {
  return unit_of(call) == decode_step_keys(call.has_codes());
}

tile::BoxedTensor boxed_rows(const AttentionCall& call, const HeadRows& rows) {
  tile::BoxedTensor keys = boxed(call, rows, call.n_k, call.kv_heads, unit_of(call));
  if (call.has_codes()) {  // the the rows of all heads of a block are one row row
    const int heads = heads_of_block(call);
    keys.dtype = call.stored;
    keys.sizes[0] *= heads;
    keys.sizes[2] /= heads;
    keys.strides[1] *= heads;
  } else if (copies_whole_steps(call)) {  // else one panel of one head (fetch.cuh)
    if (row_bytes(call) % 128 == 0) keys.box_planes = row_bytes(call) / 128;
    keys.box_heads = heads_of_block(call);
  }
  if (call.k_offsets != nullptr) keys.sizes[3] = 1;
  if (call.page_table == nullptr) return keys;
  keys.sizes[1] = call.page_size;
  keys.sizes[3] = call.pool_pages;
  return keys;
}

// Whether the rows of a block's heads are one row in memory.
bool lie_side_by_side(const AttentionCall& call, const HeadRows& rows) {
  return heads_of_block(call) == 1 || rows.head_stride == call.dim;
}

// Steps count slots, so that a copy does not cross pages. Slots before and after a hole have other
// distances than their keys, so with holes the mask must not hide early keys.
bool takes_layout(const AttentionCall& call) {
  if (call.kv_heads % heads_of_block(call) != 0) return false;
  if (call.has_codes() && !(lie_side_by_side(call, call.k) && lie_side_by_side(call, call.v))) {
    return false;
  }
  if (call.page_table == nullptr) return true;
  if (call.holes != nullptr && (call.mask.left >= 0 || call.mask.n_sink > 0)) return false;
  return call.page_size % kLeastUnit == 0 && call.page_size <= kMostHopperRows;
}

// Whether the scales of a head lie less than 2^31 after its first.
bool counts_scales(const AttentionCall& call) {
  if (!call.has_codes()) return true;
  const bool paged = call.page_table != nullptr;
  const std::int64_t rows = paged ? call.page_size : call.n_k;
  const std::int64_t batches = paged                       ? call.pool_pages
                               : call.k_offsets != nullptr ? 1
                                                           : call.sequences;
  const auto counts = [&](const KeyScales& scales) {
    return batches <= 1 ||
           (scales.batch_stride >= 0 && scales.batch_stride <= (INT32_MAX - rows) / (batches - 1));
  };
  return counts(call.k_scales) && counts(call.v_scales);
}

// Whether the number of steps of all heads and sequences fits an int.
bool counts_steps(const AttentionCall& call) {
  const std::int64_t steps = call.n_k / decode_step_keys(call.has_codes()) + 2;
  return call.sequences >= 1 && call.sequences <= kMostSequences && call.n_k >= 1 &&
         call.n_q >= 1 && call.sequences * call.kv_heads <= State::kSlotCounters &&
         steps <= INT32_MAX / (call.sequences * call.kv_heads);
}

// Equal numbers of blocks for all heads, if that gives nearly every multiprocessor a block.
DecodeShares shares_for(const DeviceLimits& gpu, std::int64_t groups) {
  const int heads = static_cast<int>(groups), each = gpu.multiprocessors / heads;
  if (each * heads * 10 >= gpu.multiprocessors * 9) return {.groups = heads, .each = each};
  return {.groups = 1, .each = gpu.multiprocessors};
}

// Of all parts.
std::int64_t partial_rows(const AttentionPlan& plan) {
  const HopperDecodePlan& decode = plan.decode;
  const std::int64_t slots = checked_mul(plan.call.sequences, plan.call.kv_heads / decode.heads);
  return checked_mul(checked_add(slots, decode.shares.blocks()), decode.heads * decode.rows);
}

template <typename F>
void with_dim(int dim, F&& fn) {
  if (dim == 64) return fn(std::integral_constant<int, 64>());
  if (dim == 80) return fn(std::integral_constant<int, 80>());
  fn(std::integral_constant<int, 128>());
}

template <typename T, int dim>
void launch_any(const Launch& launch, std::int64_t room, const DecodeCall& decode) {
  if (decode.call.has_codes()) {
    launch_codes<T, dim>(launch, room, decode);
  } else {
    launch_kernel<T, dim>(launch, room, decode);
  }
}

}  // namespace

bool takes(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (!has_hopper_kernels(request.gpu) || !split::takes(request)) return false;
  if (request.fixed_splits || !has_plain_scores(call) || is_pattern(call) ||
      !request.units.vectors) {
    return false;
  }
  const int dims[] = {64, 80, 128};
  if (std::find(std::begin(dims), std::end(dims), call.dim) == std::end(dims)) return false;
  return takes_layout(call) && counts_steps(call) && counts_scales(call) &&
         can_be_boxed(boxed_rows(call, call.k)) && can_be_boxed(boxed_rows(call, call.v));
}

bool pays(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (call.has_codes()) {
    return call.sequences * call.n_k * call.kv_heads * call.dim >= kLeastCodes;
  }
  // Small rows in small pages take more copies than one warp can start in time.
  if (call.dim == 64 && !copies_whole_steps(call)) return false;
  return call.sequences * call.n_k >= kLeastKeys;
}

AttentionPlan plan(const AttentionRequest& request) {
  AttentionPlan plan = split::plan(request);
  const int heads = heads_of_block(plan.call);
  plan.decode = {.shares = shares_for(request.gpu, plan.call.kv_heads / heads),
                 .heads = heads,
                 .rows = static_cast<int>(request.rows())};
  return plan;
}

std::int64_t scratch(const AttentionPlan& plan) {
  const std::int64_t rows = partial_rows(plan);
  const std::int64_t own = ScratchSize()
                               .add<float>(checked_mul(rows, plan.call.dim))
                               .add<float>(checked_mul(rows, 2))
                               .bytes();
  // An upper bound: a call over fewer keys may run on cuda.split.
  return std::max(own, split::scratch(plan));
}

void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  State& state = state_of(ctx);
  const AttentionCall& call = plan.call;
  const std::int64_t rows = partial_rows(plan);
  const split::Partials partials{.sums = frame.take<float>(checked_mul(rows, call.dim)),
                                 .largest_and_sum = frame.take<float>(checked_mul(rows, 2)),
                                 .rows = plan.decode.heads * plan.decode.rows,
                                 .counters = state.counters() + State::kWorkCounters};
  const Launch launch(ctx, "attention");
  with_dim(call.dim, [&](auto dim) {
    // Keys of a page that is not in the pool are NaN, or have the scale NaN. Its values are 0, as
    // some rows may not see them.
    tile::BoxedTensor keys = boxed_rows(call, call.k);
    keys.nan_outside = call.page_table != nullptr && !call.has_codes();
    const DecodeCall decode{
        .k = make_row_map(keys),
        .v = make_row_map(boxed_rows(call, call.v)),
        .call = call,
        .shares = plan.decode.shares,
        .partials = partials,
        .stages = 0,             // set by the instance
        .in_flight = kInFlight,  // bytes; the instance counts stages
        .unit = unit_of(call),
    };
    if (call.dtype == DType::f16) {
      launch_any<Half, dim()>(launch, state.limits().shared_bytes, decode);
    } else {
      launch_any<BFloat16, dim()>(launch, state.limits().shared_bytes, decode);
    }
  });
}

}  // namespace tessera::cuda::hopper_decode
