#include "model/architectures/context_pass.h"

#include <memory>
#include <utility>

#include "core/workspace.h"
#include "ops/partial_sums.h"
#include "tessera/attention.h"
#include "tessera/convert.h"
#include "tessera/embedding.h"
#include "tessera/linear.h"
#include "tessera/rotary_append.h"

namespace tessera {
namespace {

Tensor as_batch(const Tensor& rows) {  // [rows, heads, dim] -> [rows, 1, heads, dim]
  const std::int64_t shape[] = {rows.size(0), 1, rows.size(1), rows.size(2)};
  const std::int64_t strides[] = {rows.stride(0), rows.stride(0), rows.stride(1), rows.stride(2)};
  return {rows.data, rows.dtype, shape, strides, rows.device};
}
Tensor as_sequence(const Tensor& rows) {  // [rows, heads, dim] -> [1, rows, heads, dim]
  const std::int64_t shape[] = {1, rows.size(0), rows.size(1), rows.size(2)};
  const std::int64_t strides[] = {rows.size(0) * rows.stride(0), rows.stride(0), rows.stride(1),
                                  rows.stride(2)};
  return {rows.data, rows.dtype, shape, strides, rows.device};
}

}  // namespace

void ContextPass::rotate_and_append(Context& ctx, const model::RotateAndAppendArgs& heads) const {
  const std::int64_t rows = step().tokens;
  // In runs of rows that are all stored or all not stored. A GPU skips the latter by itself; the
  // CPU would refuse a slot that does not exist.
  const auto* slots = step().slots.ptr<const std::int32_t>();
  const auto is_own = [&](std::int64_t row) {
    return !spread_.device().is_cpu() || slots[row] >= 0;
  };
  for (std::int64_t begin = 0; begin < rows;) {
    std::int64_t end = begin + 1;
    while (end < rows && is_own(end) == is_own(begin)) ++end;
    const auto run = [&](const Tensor& tensor) { return tensor.slice(0, begin, end); };
    if (is_own(begin)) {
      rotary_append(ctx, {.q = run(heads.q),
                          .k = run(heads.k),
                          .v = run(heads.v),
                          .positions = run(step().positions),
                          .rope = heads.rope,
                          .slots = run(step().slots),
                          .k_pages = step().pool->keys(heads.layer),
                          .v_pages = step().pool->values(heads.layer),
                          .q_out = run(heads.q)});
    } else {
      const Tensor q = as_sequence(run(heads.q));
      rotary(ctx, {.x = q, .positions = run(step().positions), .rope = heads.rope, .out = q});
    }
    begin = end;
  }
}

// All rows on every rank: each sees this rank's keys.
void ContextPass::attend_whole_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const std::int64_t rows = heads.q.size(0), n_heads = heads.q.size(1), dim = heads.q.size(2);
  Workspace::Frame frame(ctx.workspace());
  const int size = ranks_.size();
  const Tensor out = frame.take(heads.q.dtype, {rows, 1, n_heads, dim});
  const Tensor lse = frame.take(DType::f32, {rows, n_heads, 1});
  const Tensor outs = frame.take(heads.q.dtype, {size, rows, 1, n_heads, dim});
  const Tensor lses = frame.take(DType::f32, {size, rows, n_heads, 1});
  attention(ctx, {.q = as_batch(heads.q),
                  .k = spread_.whole().pool->keys(heads.layer),
                  .v = spread_.whole().pool->values(heads.layer),
                  .out = out,
                  .lse = lse,
                  .pages = spread_.pages_of(spread_.call_for(heads, 0))});
  const PartialSums sums{frame.take(DType::f32, {rows, 1, n_heads, dim}),
                         frame.take(DType::f32, {rows, n_heads, 1})};
  if (ctx.workspace().is_counting()) return;
  ranks_.all_gather(ctx, out, outs);
  ranks_.all_gather(ctx, lse, lses);
  clear_partial(ctx, sums);
  for (int r = 0; r < size; ++r) {
    merge_partial(ctx, sums, 0, outs.select(0, r), lses.select(0, r));
  }
  convert(ctx, {.x = sums.out, .out = as_batch(heads.out)});
}

// Rows spread over the ranks: this rank's rows against the pages of each rank, as these come by.
void ContextPass::attend_split_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const PagePoolOptions& pool = spread_.whole().pool->options();
  const int size = ranks_.size(), rank = ranks_.rank();
  const std::int64_t n_heads = heads.q.size(1), dim = heads.q.size(2), rows = heads.q.size(0);
  Workspace::Frame frame(ctx.workspace());
  const auto take_block = [&] {
    return frame.take(pool.dtype,
                      {2, spread_.most_pages(), pool.page_size, pool.kv_heads, pool.head_dim});
  };
  Tensor here = take_block(), next = take_block();
  const bool counts = ctx.workspace().is_counting();
  // This rank's pages, one after the other: rows of a table.
  const Tensor own = spread_.own_page_list();
  const auto gather = [&](const Tensor& pages, int which) {
    const Tensor to = here.select(0, which).slice(0, 0, own.size(0));
    embedding(ctx, {.ids = own,
                    .table = Weight::dense(pages.view({pages.size(0), -1})),
                    .out = to.view({own.size(0), -1})});
  };
  gather(spread_.whole().pool->keys(heads.layer), 0);
  gather(spread_.whole().pool->values(heads.layer), 1);
  const PartialSums sums{frame.take(DType::f32, {1, rows, n_heads, dim}),
                         frame.take(DType::f32, {1, n_heads, rows})};
  clear_partial(ctx, sums);
  const Tensor out = frame.take(heads.q.dtype, {1, rows, n_heads, dim});
  const Tensor lse = frame.take(DType::f32, {1, n_heads, rows});
  for (int turn = 0; turn < size; ++turn) {
    std::unique_ptr<Communicator::Pending> pending;
    if (turn + 1 < size && !counts) {
      pending = ranks_.start_exchange(ctx, here, (rank + 1) % size, next, (rank + size - 1) % size);
    }
    const SpreadStep::Call& call = spread_.call_for(heads, turn);
    attention(ctx, {.q = as_sequence(heads.q),
                    .k = here.select(0, 0),
                    .v = here.select(0, 1),
                    .out = out,
                    .lse = lse,
                    .mask = turn == 0 && call.holes < 0 ? Mask::causal() : Mask::full(),
                    .q_offsets = spread_.offsets_of(call),
                    .pages = spread_.pages_of(call)});
    merge_partial(ctx, sums, 0, out, lse);
    if (pending) pending->wait();
    std::swap(here, next);
  }
  if (!counts) convert(ctx, {.x = sums.out, .out = as_sequence(heads.out)});
}

void ContextPass::attend(Context& ctx, const model::CachedAttentionArgs& heads) const {
  splits_rows() ? attend_split_rows(ctx, heads) : attend_whole_rows(ctx, heads);
}

void ContextPass::gather_logit_rows(Context& ctx, const Tensor& x, const Tensor& wanted) const {
  if (ctx.workspace().is_counting()) return;
  fill_zeros(ctx, wanted);
  // One sequence: its last rows.
  const std::int64_t first = spread_.whole().tokens - spread_.whole().logits;
  const std::vector<std::int64_t>& own = spread_.own_rows();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] < first) continue;
    const Tensor from = x.select(0, static_cast<std::int64_t>(i));
    const Tensor to = wanted.select(0, own[i] - first);
    copy_bytes(ctx, to.data, to.device, from.data, from.device, from.bytes());
  }
  ranks_.all_reduce(ctx, wanted);
}

namespace model {

void run_split_pass(Context& ctx, const Model& model, const ForwardArgs& args,
                    const PassParts& parts) {
  const CacheStep& step = *args.step;
  const std::int64_t layers = model.config().layers, hidden = model.config().hidden;
  Workspace::Frame frame(ctx.workspace());
  const Tensor x = frame.take(model.dtype(), {step.tokens, hidden});
  embedding(ctx, {.ids = step.ids, .table = parts.embedding, .out = x, .drawn = args.drawn});
  for (std::int64_t i = 0; i < layers; ++i) {
    ctx.trace().enter_layer(i);
    parts.run_layer(i, x, all_rows(step), x);
  }
  ctx.trace().enter_layer(TraceEntry::kNoLayer);
  if (!args.logits.defined()) return;
  const Tensor last = frame.take(model.dtype(), {step.logits, hidden});
  args.context->gather_logit_rows(ctx, x, last);
  if (!args.context->is_first()) return;
  const Tensor normed = frame.take(model.dtype(), {step.logits, hidden});
  parts.final_norm(last, normed);
  linear(ctx, {.x = normed,
               .weight = parts.head,
               .out = args.logits,
               .fixed_rows = step.batch_invariant ? step.few_logits : -1});
}

}  // namespace model

}  // namespace tessera
