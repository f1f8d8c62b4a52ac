// Attention of many queries. A work item is a tile of query rows. Its key tile loop visits the key
// tiles that the mask does not skip, and keeps the running softmax and the output of the rows in
// scratch. No matrix of size queries x keys ever exists. Step 3 of examples/learn
// (step3_online_softmax.cu) teaches the idea, step 4 (step4_causal.cu) which tiles are skipped.
//
//                     keys ->       tile of keys: loaded once per query tile, as
//                  +----+----+----+   K^T [dim, 64] f32   for  S  = Q K^T
//         tile of  |full|full|part|   V   [64, dim] f32   for  O += P V
//   queries  rows  |    |    | \  |
//     |    +-------+----+----+----+
//     v    strips: |full|full|part|   each strip of a tile asks the mask itself, so that a
//                  |full|part|skip|   diagonal costs no more than its own squares
//                  +----+----+----+
//
// Loading a tile takes care of f16, bf16, 8-bit codes, strides, pages and the rotation of keys.
// Everything after that is f32. The rows of a tile are its queries times the heads that share the
// keys. Scales of 8-bit keys and values are applied to scores and weights.
#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/attention/attention.h"
#include "cpu/attention/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention/prefill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Must come after highway.h.
#include "cpu/attention/softmax-inl.h"
#include "cpu/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// One thread's tiles. width is dim in whole vectors, rows the tile's rows in whole blocks.
struct Scratch {
  Scratch(Carver& carver, std::int64_t rows, std::int64_t row_width)
      : width(row_width),
        q(carver.take(rows * width)),
        out(carver.take(rows * width)),
        keys_t(carver.take(width * kKeyTile)),
        key_rows(carver.take(kKeyTile * width)),
        scores(carver.take(kStripRows * kKeyTile)),
        max(carver.take(rows)),
        sum(carver.take(rows)) {}

  Running running() const { return {max, sum, out, width}; }

  std::int64_t width;
  float *q, *out;    // [rows, width]
  float* keys_t;     // [width, kKeyTile]
  float* key_rows;   // [kKeyTile, width]: keys before they are transposed, then values
  float* scores;     // [kStripRows, kKeyTile]
  float *max, *sum;  // [rows]
};

// keys_t [width, n] and key_rows [n, width] = keys and values [k0, k0 + n).
template <typename T>
void load_keys_and_values(const AttentionCall& call, const QueryTile& tile, std::int64_t k0,
                          std::int64_t n, const Scratch& scratch) {
  const std::int64_t width = scratch.width;
  const T* rows[kKeyTile];
  point_at_keys(call.args, call.args.k, tile.sequence, tile.kv_head, k0, n, rows);
  load_keys(call, rows, k0, n, width, scratch.key_rows);
  std::fill(scratch.key_rows + n * width, scratch.key_rows + padded(n) * width, 0.0f);
  transpose(scratch.key_rows, padded(n), width, scratch.keys_t);
  point_at_keys(call.args, call.args.v, tile.sequence, tile.kv_head, k0, n, rows);
  load_rows(rows, n, call.dim, 1.0f, width, scratch.key_rows);
}

void visit_strip(const AttentionCall& call, const QueryTile& tile, const Strip& strip,
                 const Scratch& scratch) {
  const std::int64_t r0 = strip.r0, rows = strip.rows, n = strip.n, width = scratch.width;
  const Running running = scratch.running().from_row(r0);
  float* s = scratch.scores;
  multiply(rows, padded(n), call.dim, {scratch.q + r0 * width, width, 1}, scratch.keys_t, kKeyTile,
           s, kKeyTile);
  apply_scales(call, call.args.k_scales, tile, rows, strip.k0, n, s);
  scores_to_exponents(call, tile, strip, s);
  update(running, rows, padded(n), s);
  if (call.args.dropout.p > 0) drop_weights(call.args.dropout, tile, strip, s);
  apply_scales(call, call.args.v_scales, tile, rows, strip.k0, n, s);
  multiply_add(rows, width, n, {s, kKeyTile, 1}, scratch.key_rows, width, running.out, width);
}

template <typename Q>
void store_tile(const AttentionCall& call, const QueryTile& tile, const Scratch& scratch) {
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const Running row = scratch.running().from_row(r);
    const std::int64_t i = tile.query(r), head = tile.head(r);
    store_row(row.out, row_factor(row), call.dim,
              query_row<Q>(call.args.out, tile.sequence, i, head));
    if (call.args.lse.defined()) *lse_at(call.args.lse, tile.sequence, i, head) = row_lse(row);
  }
}

// T is the type of k and v.
template <typename T>
void visit_tile(const AttentionCall& call, const QueryTile& tile, const Scratch& scratch) {
  const Mask& mask = call.args.mask;
  const std::int64_t shift = tile.sequence.shift(), n_k = tile.sequence.n_k;
  const std::int64_t q0 = tile.q0, q1 = tile.q0 + tile.queries;
  load_queries(call, tile, scratch.width, scratch.q);
  start(scratch.running(), whole_blocks(tile.rows()));
  for (std::int64_t k = 0; (k = mask.next_visible(q0, q1, k, shift)) < n_k;) {
    const std::int64_t k0 = k / call.key_tile * call.key_tile;
    const std::int64_t n = std::min(call.key_tile, n_k - k0);
    k = k0 + call.key_tile;
    load_keys_and_values<T>(call, tile, k0, n, scratch);
    for_each_strip(call, tile, k0, n,
                   [&](const Strip& strip) HWY_ATTR { visit_strip(call, tile, strip, scratch); });
  }
  with_float_type(call.args.out.dtype,
                  [&](auto type) HWY_ATTR { store_tile<decltype(type)>(call, tile, scratch); });
}

std::int64_t rows_of_tile(const AttentionCall& call, std::int64_t queries_per_tile) {
  return whole_blocks(queries_per_tile * call.group);
}

// f32 values of one thread.
std::int64_t worker_scratch(const AttentionCall& call, std::int64_t queries_per_tile) {
  Carver size;
  Scratch(size, rows_of_tile(call, queries_per_tile), padded(call.dim));
  return size.used();
}

void prefill(Context& ctx, const AttentionCall& call, std::span<const WorkItem> items,
             std::int64_t queries_per_tile) {
  const std::int64_t rows = rows_of_tile(call, queries_per_tile), width = padded(call.dim);
  const std::int64_t worker_stride = worker_scratch(call, queries_per_tile);
  Workspace::Frame frame(ctx.workspace());
  float* memory = frame.take<float>(checked_mul(ctx.threads(), worker_stride));
  with_key_type(call.args.k.dtype, [&](auto type) {
    const std::int64_t tasks = static_cast<std::int64_t>(items.size()) * call.kv_heads;
    ctx.pool().parallel_for(tasks, [&](std::int64_t task, int worker) HWY_ATTR {
      const WorkItem& item = items[static_cast<std::size_t>(task / call.kv_heads)];
      const Sequence sequence = sequence_of(call.args, item.sequence);
      const QueryTile tile{sequence, task % call.kv_heads, item.begin,
                           std::min(queries_per_tile, sequence.n_q - item.begin), call.group};
      Carver carver(memory + worker * worker_stride);
      visit_tile<decltype(type)>(call, tile, Scratch(carver, rows, width));
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(prefill);
HWY_EXPORT(worker_scratch);

void attention_prefill(Context& ctx, const AttentionCall& call, std::span<const WorkItem> items,
                       std::int64_t queries_per_tile) {
  HWY_DYNAMIC_DISPATCH(prefill)(ctx, call, items, queries_per_tile);
}

std::int64_t prefill_scratch_bytes(Context& ctx, const AttentionCall& call,
                                   std::int64_t queries_per_tile) {
  const std::int64_t floats = HWY_DYNAMIC_DISPATCH(worker_scratch)(call, queries_per_tile);
  return ScratchSize().add<float>(checked_mul(ctx.threads(), floats)).bytes();
}

}  // namespace tessera::cpu
#endif
