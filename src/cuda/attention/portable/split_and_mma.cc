#include "cuda/attention/portable/split_and_mma.h"

#include <algorithm>

#include "core/checked.h"
#include "cuda/attention/portable/instance.h"
#include "cuda/attention/portable/split_rotated.h"

namespace tessera::cuda {
namespace mma {

bool takes(const AttentionRequest& request) { return request.tensor_cores; }

AttentionPlan plan(const AttentionRequest& request) {
  AttentionPlan plan(request);
  keep_within_positions(plan.call.mask);
  return plan;
}

void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame&) {
  with_tensor_core_types(plan.call, [&](auto type, auto dim) {
    launch<decltype(type), dim()>(ctx, plan.call, plan.options);
  });
}

}  // namespace mma

namespace split {
namespace {

std::int64_t all_rows(const PartialShape& shape) {
  return checked_mul(checked_mul(shape.slots, shape.splits), shape.rows);
}

PartialShape partial_shape(const AttentionCall& call, bool fixed, const QueryTiles& tiles = {}) {
  // A group with more heads than the kernel has rows never gets here.
  if (call.group > kFewRows) return {};
  const std::int64_t heads = call.kv_heads * tiles.count;  // of a sequence, each with own blocks
  const std::int64_t slots = checked_mul(call.sequences, heads);
  const SplitRule rule = split_rule(heads, fixed ? heads : slots);
  const std::int64_t queries = std::min<std::int64_t>(call.n_q, tiles.queries);
  return {.rule = rule,
          .tiles = tiles,
          .slots = slots,
          .splits = most_splits(call.n_k, rule),
          .rows = static_cast<int>(std::min(kFewRows, queries * call.group))};
}

// As many queries as one block has rows for, and as many such tiles as the call needs.
QueryTiles query_tiles(const AttentionCall& call) {
  const std::int64_t queries = kFewRows / call.group;
  return {.count = static_cast<int>(tiles_of(call.n_q, queries)),
          .queries = static_cast<int>(queries)};
}

Partials take_partials(Context& ctx, Workspace::Frame& frame, const AttentionPlan& plan) {
  const PartialShape& shape = plan.partials;
  Partials partials{
      .rule = shape.rule, .tiles = shape.tiles, .splits = shape.splits, .rows = shape.rows};
  if (shape.splits <= 1) return partials;
  partials.sums = frame.take<float>(checked_mul(all_rows(shape), plan.call.dim));
  partials.largest_and_sum = frame.take<float>(checked_mul(all_rows(shape), 2));
  if (shape.rows <= kMergedRows && shape.slots <= State::kSlotCounters) {
    partials.counters = state_of(ctx).counters() + State::kWorkCounters;
  }
  return partials;
}

void launch_split(Context& ctx, const AttentionPlan& plan, const NewTokens* tokens,
                  Workspace::Frame& frame) {
  const Partials partials = take_partials(ctx, frame, plan);
  with_tensor_core_types(plan.call, [&](auto type, auto dim) {
    launch<decltype(type), dim()>(ctx, plan.call, plan.options, partials, tokens);
  });
}

// Whether keys and values are codes that can be decoded in registers.
bool suit_registers(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  return call.has_codes() && has_plain_scores(call) && !is_pattern(call) && request.units.vectors &&
         call.dim <= kMostCodes;
}

}  // namespace

bool takes(const AttentionRequest& request) {
  return request.tensor_cores && request.rows() <= kFewRows;
}

AttentionPlan plan(const AttentionRequest& request) {
  AttentionPlan plan = mma::plan(request);
  plan.partials = partial_shape(plan.call, request.fixed_splits);
  return plan;
}

std::int64_t scratch(const AttentionPlan& plan) {
  const PartialShape& shape = plan.partials;
  if (shape.splits <= 1) return 0;
  return ScratchSize()
      .add<float>(checked_mul(all_rows(shape), plan.call.dim))
      .add<float>(checked_mul(all_rows(shape), 2))
      .bytes();
}

void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  launch_split(ctx, plan, nullptr, frame);
}

void run_with_tokens(Context& ctx, const AttentionPlan& plan, const NewTokens& tokens,
                     Workspace::Frame& frame) {
  launch_split(ctx, plan, &tokens, frame);
}

bool takes_codes(const AttentionRequest& request) {
  return takes(request) && suit_registers(request);
}

AttentionPlan plan_codes(const AttentionRequest& request) {
  AttentionPlan of_codes = plan(request);
  of_codes.options.codes_in_registers = true;
  return of_codes;
}

bool takes_rotated(const AttentionRequest& request) {
  return takes(request) && suits_rotating(request.call, request.units);
}

void run_rotated(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  const Partials partials = take_partials(ctx, frame, plan);
  with_tensor_core_types(plan.call, [&](auto type, auto dim) {
    constexpr int kDim = std::min<int>(dim(), kMostRotated);  // wider heads never get here
    launch_rotated<decltype(type), kDim>(ctx, plan.call, plan.options, partials);
  });
}

void run_few(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  if (suits_rotating(plan.call, plan.options.units)) {
    run_rotated(ctx, plan, frame);
  } else {
    run(ctx, plan, frame);
  }
}

bool takes_run(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  return request.tensor_cores && call.q_offsets == nullptr && call.group <= kFewRows &&
         request.rows() > kFewRows && call.n_q <= kRunQueries && call.mask.right == 0 &&
         !is_pattern(call) && !call.dropping &&
         call.sequences <= INT32_MAX / (kMostSplits * kRunQueries) / call.kv_heads;
}

// Each tile reads the keys again, from the L2 cache, while the kernels for many rows read them
// once. But with few heads those leave most multiprocessors idle, however many keys there are. With
// pages the other kernel is cuda.hopper, which is faster over short sequences. Measured on an H200
// (docs/notebook/attention_portable.md). In a ragged batch such a sequence goes to the kernels for
// many rows. Where its bits must not depend on the batch, it goes there alone too.
bool run_pays(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (request.fixed_splits || call.group > kFewRows) return false;
  const int tiles = query_tiles(call).count;
  if (tiles > 4) return false;
  if (call.page_table != nullptr) return call.n_k >= (tiles <= 2 ? 1024 : 2048);
  return tiles <= 2 || call.sequences * call.kv_heads <= 32;
}

AttentionPlan plan_run(const AttentionRequest& request) {
  AttentionPlan run = mma::plan(request);
  run.partials = partial_shape(run.call, request.fixed_splits, query_tiles(run.call));
  run.options.codes_in_registers = suit_registers(request);
  return run;
}

bool takes_mixed(const AttentionRequest& request) {
  return request.tensor_cores && request.call.q_offsets != nullptr && request.rows() > kFewRows;
}

AttentionPlan plan_mixed(const AttentionRequest& request) {
  AttentionPlan mixed = plan(request);
  mixed.options.leave_few = true;
  mixed.options.codes_in_registers = suit_registers(request);
  return mixed;
}

void run_mixed(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame) {
  mma::run(ctx, plan, frame);
  run_few(ctx, plan, frame);
}

}  // namespace split
}  // namespace tessera::cuda
