#include "model/architectures/context_pass.h"

#include <algorithm>
#include <span>

#include "core/checked.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "model/architectures/spread_sequence.h"
#include "modules/merge_partial.h"
#include "tessera/attention.h"
#include "tessera/convert.h"
#include "tessera/embedding.h"
#include "tessera/linear.h"
#include "tessera/rotary_append.h"

namespace tessera {
namespace {

// The keys that a query sees: [begin, end) of its sequence, where it is the one before `end`.
struct Seen {
  std::int64_t begin, end;
};
Seen seen_by(std::int64_t query, const Mask& mask, std::int64_t window) {
  std::int64_t left = mask.kind() == Mask::Kind::window ? mask.left() : -1;
  if (window > 0) left = left < 0 ? window - 1 : std::min(left, window - 1);
  return {left < 0 ? 0 : std::max<std::int64_t>(0, query - left), query + 1};
}

// Small tensors of one attention() call, on the host.
struct Numbers {
  std::vector<std::int32_t> table, lengths, holes, offsets;
  std::int64_t width = 1;

  PageTable pages() {
    const auto rows = std::ssize(lengths);
    PageTable result{.table = Tensor(table.data(), DType::i32, {rows, width}),
                     .lengths = Tensor(lengths.data(), DType::i32, {rows})};
    if (!holes.empty()) result.holes = Tensor(holes.data(), DType::i32, {rows, 2});
    return result;
  }
};

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

// The queries of a group's sequence `index`: [begin, end) of the group's rows.
Seen queries_of(const AttentionGroup& group, std::int64_t index) {
  if (group.q_offsets.defined()) {
    const auto* offsets = group.q_offsets.ptr<const std::int32_t>();
    return {offsets[index], offsets[index + 1]};
  }
  const std::int64_t each = group.rows / group.sequences;
  return {index * each, (index + 1) * each};
}

}  // namespace

// ---- which rows ---------------------------------------------------------------------------------

ContextPass::ContextPass(Context& ctx, Communicator& ranks, const ForwardArgs& args)
    : ranks_(ranks), whole_(*args.step), share_(whole_.pool->options().share()), local_(whole_) {
  if (!ctx.device().is_cpu() || share_.size != ranks.size()) {
    fail(ErrorCode::invalid_argument,
         "a cache of {} processes was given to a model of {}; make it with make_cache() or "
         "make_pool()",
         share_.size, ranks.size());
  }
  const std::int64_t page_size = whole_.pool->options().page_size;
  const auto* slots = whole_.slots.ptr<const std::int32_t>();
  std::vector<std::int64_t> rows_of(static_cast<std::size_t>(ranks.size()), 0);
  for (std::int64_t row = 0; row < whole_.tokens; ++row) {
    const std::int64_t page = slots[row] < 0 ? -1 : slots[row] / page_size;
    const bool is_own = page >= 0 && share_.is_own(page);
    if (page >= 0) ++rows_of[static_cast<std::size_t>(share_.owner(page))];
    if (is_own) own_rows_.push_back(row);
    slots_.push_back(
        is_own ? static_cast<std::int32_t>(share_.local(page) * page_size + slots[row] % page_size)
               : -1);
  }
  const bool is_one_sequence = whole_.groups.size() == 1 && whole_.groups[0].sequences == 1;
  splits_ = is_one_sequence && !args.observe &&
            *std::min_element(rows_of.begin(), rows_of.end()) >= CacheBatch::kFewTokens;
  if (splits_) keep_own_rows();
  local_.slots = Tensor(slots_.data(), DType::i32, {std::ssize(slots_)});
}

void ContextPass::keep_own_rows() {
  std::vector<std::int32_t> own_slots;
  for (const std::int64_t row : own_rows_) {
    ids_.push_back(whole_.ids.ptr<const std::int32_t>()[row]);
    positions_.push_back(whole_.positions.ptr<const std::int64_t>()[row]);
    own_slots.push_back(slots_[static_cast<std::size_t>(row)]);
  }
  slots_ = std::move(own_slots);
  const auto rows = std::ssize(own_rows_);
  local_.tokens = rows;
  local_.ids = Tensor(ids_.data(), DType::i32, {rows});
  local_.positions = Tensor(positions_.data(), DType::i64, {rows});
  local_.groups[0].rows = rows;
  local_.few_rows = std::min(local_.few_rows, rows);
}

void ContextPass::turn_and_append(Context& ctx, const model::TurnAndAppendArgs& heads) const {
  const std::int64_t rows = local_.tokens;
  for (std::int64_t begin = 0; begin < rows;) {  // in runs of rows that are stored, or not
    const auto is_own = [&](std::int64_t row) {
      return slots_[static_cast<std::size_t>(row)] >= 0;
    };
    std::int64_t end = begin + 1;
    while (end < rows && is_own(end) == is_own(begin)) ++end;
    const auto run = [&](const Tensor& tensor) { return tensor.slice(0, begin, end); };
    if (is_own(begin)) {
      rotary_append(ctx, {.q = run(heads.q),
                          .k = run(heads.k),
                          .v = run(heads.v),
                          .positions = run(local_.positions),
                          .rope = heads.rope,
                          .slots = run(local_.slots),
                          .k_pages = local_.pool->keys(heads.layer),
                          .v_pages = local_.pool->values(heads.layer),
                          .q_out = run(heads.q)});
    } else {
      const Tensor q = as_sequence(run(heads.q));
      rotary(ctx, {.x = q, .positions = run(local_.positions), .rope = heads.rope, .out = q});
    }
    begin = end;
  }
}

// ---- all rows on every rank ---------------------------------------------------------------------

// Each row is a sequence of one query over this rank's keys.
void ContextPass::attend_whole_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const PagePoolOptions& pool = whole_.pool->options();
  const std::int64_t rows = heads.q.size(0), n_heads = heads.q.size(1), dim = heads.q.size(2);
  Numbers numbers;
  for (const AttentionGroup& group : heads.groups) {
    numbers.width = std::max(numbers.width, group.pages.table.size(1));
  }
  for (const AttentionGroup& group : heads.groups) {
    for (std::int64_t s = 0; s < group.sequences; ++s) {
      const SpreadSequence sequence(group, s, pool.page_size, share_);
      const Seen queries = queries_of(group, s);
      std::vector<std::int32_t> own = sequence.own_pages(share_.rank);
      own.resize(static_cast<std::size_t>(numbers.width));
      for (std::int64_t i = queries.begin; i < queries.end; ++i) {
        const std::int64_t query = sequence.keys() - (queries.end - i);
        const Seen seen = seen_by(query, group.mask, heads.window);
        const std::int64_t begin = sequence.slots_before(sequence.slot(seen.begin), share_.rank);
        const std::int64_t end = sequence.slots_before(sequence.slot(seen.end), share_.rank);
        // A row for nobody has no keys.
        const bool is_empty = sequence.keys() == 0;
        numbers.table.insert(numbers.table.end(), own.begin(), own.end());
        numbers.lengths.push_back(is_empty ? 0 : static_cast<std::int32_t>(end - begin));
        numbers.holes.push_back(0);
        numbers.holes.push_back(is_empty ? 0 : static_cast<std::int32_t>(begin));
      }
    }
  }
  Workspace::Frame frame(ctx.workspace());
  const int size = ranks_.size();
  const Tensor out = frame.take(heads.q.dtype, {rows, 1, n_heads, dim});
  const Tensor lse = frame.take(DType::f32, {rows, n_heads, 1});
  const Tensor outs = frame.take(heads.q.dtype, {size, rows, 1, n_heads, dim});
  const Tensor lses = frame.take(DType::f32, {size, rows, n_heads, 1});
  attention(ctx, {.q = as_batch(heads.q),
                  .k = whole_.pool->keys(heads.layer),
                  .v = whole_.pool->values(heads.layer),
                  .out = out,
                  .lse = lse,
                  .pages = numbers.pages()});
  const PartialSums sums{frame.take(DType::f32, {rows, 1, n_heads, dim}),
                         frame.take(DType::f32, {rows, n_heads, 1})};
  if (ctx.workspace().is_counting()) return;
  ranks_.all_gather(ctx, out, outs);
  ranks_.all_gather(ctx, lse, lses);
  sums.clear();
  for (int r = 0; r < size; ++r) {
    merge_partial(ctx, sums, 0, outs.select(0, r), lses.select(0, r));
  }
  convert(ctx, {.x = sums.out, .out = as_batch(heads.out)});
}

// ---- rows spread over the ranks -----------------------------------------------------------------

namespace {

// The own rows against the pages of one rank.
struct Block {
  const SpreadSequence& sequence;
  int owner;
  std::int64_t page_size;
};

// Rows of one page share a call where no window moves with them: they see the owner's keys up to
// their page; of their own rank, up to themselves.
Numbers by_page(const Block& block, std::span<const std::int64_t> slots, bool is_own) {
  Numbers numbers;
  numbers.offsets.push_back(0);
  for (std::size_t i = 0; i < slots.size();) {
    const std::int64_t page = slots[i] / block.page_size;
    while (i < slots.size() && slots[i] / block.page_size == page) ++i;
    const std::int64_t end = is_own ? slots[i - 1] + 1 : page * block.page_size;
    numbers.offsets.push_back(static_cast<std::int32_t>(i));
    numbers.lengths.push_back(
        static_cast<std::int32_t>(block.sequence.slots_before(end, block.owner)));
  }
  return numbers;
}

// With a window, each row sees keys of its own.
Numbers by_row(const Block& block, std::span<const std::int64_t> slots, const Mask& mask,
               std::int64_t window) {
  Numbers numbers;
  numbers.offsets.push_back(0);
  const std::int64_t first = block.sequence.slot(0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Seen seen = seen_by(slots[i] - first, mask, window);
    const std::int64_t begin =
        block.sequence.slots_before(block.sequence.slot(seen.begin), block.owner);
    const std::int64_t end =
        block.sequence.slots_before(block.sequence.slot(seen.end), block.owner);
    numbers.offsets.push_back(static_cast<std::int32_t>(i + 1));
    numbers.lengths.push_back(static_cast<std::int32_t>(end - begin));
    numbers.holes.push_back(0);
    numbers.holes.push_back(static_cast<std::int32_t>(begin));
  }
  return numbers;
}

}  // namespace

void ContextPass::attend_split_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const AttentionGroup& group = whole_.groups[0];
  const PagePoolOptions& pool = whole_.pool->options();
  const SpreadSequence sequence(group, 0, pool.page_size, share_);
  const int size = ranks_.size(), rank = ranks_.rank();
  const bool has_window = heads.window > 0 || group.mask.kind() == Mask::Kind::window;
  std::vector<std::int64_t> slots;  // of the sequence
  for (const std::int64_t row : own_rows_) {
    slots.push_back(sequence.slot(sequence.keys() - whole_.tokens + row));
  }
  std::int64_t most_pages = 0;
  for (int r = 0; r < size; ++r) {
    most_pages = std::max<std::int64_t>(most_pages, std::ssize(sequence.own_pages(r)));
  }
  const std::int64_t n_heads = heads.q.size(1), dim = heads.q.size(2), rows = heads.q.size(0);
  Workspace::Frame frame(ctx.workspace());
  const auto take_block = [&] {
    return frame.take(pool.dtype, {2, most_pages, pool.page_size, pool.kv_heads, pool.head_dim});
  };
  Tensor here = take_block(), next = take_block();
  const bool counts = ctx.workspace().is_counting();
  const std::vector<std::int32_t> own = sequence.own_pages(rank);
  for (std::size_t i = 0; i < own.size() && !counts; ++i) {
    const auto copy = [&](const Tensor& pages, int which) {
      const Tensor from = pages.select(0, own[i]);
      const Tensor to = here.select(0, which).select(0, static_cast<std::int64_t>(i));
      copy_bytes(ctx, to.data, to.device, from.data, from.device, from.bytes());
    };
    copy(whole_.pool->keys(heads.layer), 0);
    copy(whole_.pool->values(heads.layer), 1);
  }
  const PartialSums sums{frame.take(DType::f32, {1, rows, n_heads, dim}),
                         frame.take(DType::f32, {1, n_heads, rows})};
  if (!counts) sums.clear();
  const Tensor out = frame.take(heads.q.dtype, {1, rows, n_heads, dim});
  const Tensor lse = frame.take(DType::f32, {1, n_heads, rows});
  for (int turn = 0; turn < size; ++turn) {
    const Block block{sequence, (rank + size - turn) % size, pool.page_size};
    std::unique_ptr<Communicator::Pending> pending;
    if (turn + 1 < size && !counts) {
      pending = ranks_.start_exchange(ctx, here, (rank + 1) % size, next, (rank + size - 1) % size);
    }
    Numbers numbers = has_window ? by_row(block, slots, group.mask, heads.window)
                                 : by_page(block, slots, turn == 0);
    numbers.width = most_pages;  // page i of the block is its i-th
    for (std::size_t s = 0; s < numbers.lengths.size(); ++s) {
      for (std::int64_t i = 0; i < most_pages; ++i) {
        numbers.table.push_back(static_cast<std::int32_t>(i));
      }
    }
    attention(ctx, {.q = as_sequence(heads.q),
                    .k = here.select(0, 0),
                    .v = here.select(0, 1),
                    .out = out,
                    .lse = lse,
                    .mask = turn == 0 && !has_window ? Mask::causal() : Mask::full(),
                    .q_offsets =
                        Tensor(numbers.offsets.data(), DType::i32, {std::ssize(numbers.offsets)}),
                    .pages = numbers.pages()});
    if (!counts) merge_partial(ctx, sums, 0, out, lse);
    if (pending) pending->wait();
    std::swap(here, next);
  }
  if (!counts) convert(ctx, {.x = sums.out, .out = as_sequence(heads.out)});
}

void ContextPass::attend(Context& ctx, const model::CachedAttentionArgs& heads) const {
  splits_ ? attend_split_rows(ctx, heads) : attend_whole_rows(ctx, heads);
}

void ContextPass::gather_logit_rows(Context& ctx, const Tensor& x, const Tensor& wanted) const {
  if (ctx.workspace().is_counting()) return;
  std::fill_n(static_cast<char*>(wanted.data), wanted.bytes(), 0);
  // One sequence: its last rows.
  const std::int64_t first = whole_.tokens - whole_.logits;
  for (std::size_t i = 0; i < own_rows_.size(); ++i) {
    if (own_rows_[i] < first) continue;
    const Tensor from = x.select(0, static_cast<std::int64_t>(i));
    const Tensor to = wanted.select(0, own_rows_[i] - first);
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
  embedding(ctx, {.ids = step.ids, .table = parts.embedding, .out = x});
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
