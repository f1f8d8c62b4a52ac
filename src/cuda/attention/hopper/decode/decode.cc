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

// Keys of all sequences from which on this kernel is faster than cuda.split. It has more to do
// before the first key arrives.
constexpr std::int64_t kLeastKeys = 16384;

// Bytes on their way to a multiprocessor. Less does not keep memory busy, and more makes it slower:
// measured on an H200 (docs/notebook/attention_hopper_decode.md).
constexpr int kInFlight = 68 << 10;

// The keys that one copy brings. They lie in one page.
int unit_of(const AttentionCall& call) {
  return call.page_table == nullptr || call.page_size % kStepKeys == 0 ? kStepKeys : kLeastUnit;
}

tile::BoxedTensor boxed_rows(const AttentionCall& call, const HeadRows& rows, int heads) {
  tile::BoxedTensor keys = boxed(call, rows, call.n_k, call.kv_heads, unit_of(call));
  // Whole rows, or one panel of them (fetch.cuh).
  const std::int64_t row_bytes = call.dim * size_of(call.dtype);
  if (unit_of(call) == kStepKeys && row_bytes % 128 == 0) {
    keys.box_planes = static_cast<int>(row_bytes / 128);
  }
  if (unit_of(call) == kStepKeys) keys.box_heads = heads;
  if (call.k_offsets != nullptr) keys.sizes[3] = 1;
  if (call.page_table == nullptr) return keys;
  keys.sizes[1] = call.page_size;
  keys.sizes[3] = call.pool_pages;
  return keys;
}

// A hole would move keys across units, and a unit has one page.
bool takes_layout(const AttentionCall& call) {
  if (call.page_table == nullptr) return true;
  return call.holes == nullptr && call.page_size % kLeastUnit == 0 &&
         call.page_size <= kMostHopperRows;
}

// Whether the steps of all heads and sequences are an int.
bool counts_steps(const AttentionCall& call) {
  const std::int64_t steps = call.n_k / kStepKeys + 2;
  return call.sequences >= 1 && call.sequences <= kMostSequences && call.n_k >= 1 &&
         call.n_q >= 1 && call.sequences * call.kv_heads <= State::kSlotCounters &&
         steps <= INT32_MAX / (call.sequences * call.kv_heads);
}

// Equal numbers of blocks for all heads, if nearly all multiprocessors have one then.
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

}  // namespace

bool takes(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (!has_hopper_kernels(request.gpu) || !split::takes(request)) return false;
  if (request.fixed_splits || !is_lean(call) || is_pattern(call) || !request.units.vectors)
    return false;
  if (call.kv_heads % decode_heads(call.dim) != 0) return false;
  const int dims[] = {64, 80, 128};
  if (std::find(std::begin(dims), std::end(dims), call.dim) == std::end(dims)) return false;
  return takes_layout(call) && counts_steps(call) && can_be_boxed(boxed_rows(call, call.k, 1)) &&
         can_be_boxed(boxed_rows(call, call.v, 1));
}

bool pays(const AttentionRequest& request) {
  // Small rows in small pages are more copies than one warp can start in time.
  if (request.call.dim == 64 && unit_of(request.call) < kStepKeys) return false;
  return request.call.sequences * request.call.n_k >= kLeastKeys;
}

AttentionPlan plan(const AttentionRequest& request) {
  AttentionPlan plan = split::plan(request);
  const int heads = decode_heads(plan.call.dim);
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
  // A call over fewer keys, for which this is an upper bound, may come to cuda.split.
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
    // Keys of a page that is not in the pool are NaN. Its values are 0, as a row may not see them.
    tile::BoxedTensor keys = boxed_rows(call, call.k, plan.decode.heads);
    keys.nan_outside = call.page_table != nullptr;
    const DecodeCall decode{
        .k = make_row_map(keys),
        .v = make_row_map(boxed_rows(call, call.v, plan.decode.heads)),
        .call = call,
        .shares = plan.decode.shares,
        .partials = partials,
        .stages = 0,             // the instance knows
        .in_flight = kInFlight,  // bytes; the instance counts stages
        .unit = unit_of(call),
    };
    if (call.dtype == DType::f16) {
      launch_kernel<Half, dim()>(launch, state.limits().shared_bytes, decode);
    } else {
      launch_kernel<BFloat16, dim()>(launch, state.limits().shared_bytes, decode);
    }
  });
}

}  // namespace tessera::cuda::hopper_decode
