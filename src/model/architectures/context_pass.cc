#include "model/architectures/context_pass.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "core/fail.h"
#include "core/workspace.h"
#include "ops/partial_sums.h"
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

// The queries of a group's sequence `index`: [begin, end) of the group's rows. The group's tensors
// are on the host.
Seen queries_of(const AttentionGroup& group, std::int64_t index) {
  if (group.q_offsets.defined()) {
    const auto* offsets = group.q_offsets.ptr<const std::int32_t>();
    return {offsets[index], offsets[index + 1]};
  }
  const std::int64_t each = group.rows / group.sequences;
  return {index * each, (index + 1) * each};
}

// A group whose small tensors the host can read.
AttentionGroup on_host(const CacheStep& step, AttentionGroup group) {
  for (Tensor* tensor :
       {&group.q_offsets, &group.pages.table, &group.pages.lengths, &group.pages.holes}) {
    *tensor = step.on_host(*tensor);
  }
  return group;
}

}  // namespace

// ---- which rows ---------------------------------------------------------------------------------

ContextPass::ContextPass(Context& ctx, Communicator& ranks, const ForwardArgs& args,
                         std::span<const std::int64_t> windows)
    : ranks_(ranks),
      whole_(*args.step),
      share_(whole_.pool->options().share()),
      local_(whole_),
      frame_(ctx.workspace()),
      device_(ctx.device()) {
  if (share_.size != ranks.size()) {
    fail(ErrorCode::invalid_argument,
         "a cache of {} processes was given to a model of {}; make it with make_cache() or "
         "make_pool()",
         share_.size, ranks.size());
  }
  const std::int64_t page_size = whole_.pool->options().page_size;
  const auto* slots = whole_.on_host(whole_.slots).ptr<const std::int32_t>();
  std::vector<std::int32_t> local_slots;
  std::vector<std::int64_t> rows_of(static_cast<std::size_t>(ranks.size()), 0);
  for (std::int64_t row = 0; row < whole_.tokens; ++row) {
    const std::int64_t page = slots[row] < 0 ? -1 : slots[row] / page_size;
    const bool is_own = page >= 0 && share_.is_own(page);
    if (page >= 0) ++rows_of[static_cast<std::size_t>(share_.owner(page))];
    if (is_own) own_rows_.push_back(row);
    local_slots.push_back(
        is_own ? static_cast<std::int32_t>(share_.local(page) * page_size + slots[row] % page_size)
               : -1);
  }
  const bool is_one_sequence = whole_.groups.size() == 1 && whole_.groups[0].sequences == 1;
  splits_ = is_one_sequence && !args.observe &&
            *std::min_element(rows_of.begin(), rows_of.end()) >= CacheBatch::kFewTokens;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> ids;
  if (splits_) {  // this rank's rows
    std::vector<std::int32_t> own_slots;
    for (const std::int64_t row : own_rows_) {
      ids.push_back(whole_.on_host(whole_.ids).ptr<const std::int32_t>()[row]);
      positions.push_back(whole_.on_host(whole_.positions).ptr<const std::int64_t>()[row]);
      own_slots.push_back(local_slots[static_cast<std::size_t>(row)]);
    }
    local_slots = std::move(own_slots);
  }
  const std::int64_t positions_at = add(positions), ids_at = add(ids), slots_at = add(local_slots);

  write_calls(windows);
  upload(ctx);
  const auto rows = std::ssize(local_slots);
  local_.slots = small(slots_at, DType::i32, {rows});
  if (!splits_) return;
  local_.tokens = rows;
  local_.ids = small(ids_at, DType::i32, {rows});
  local_.positions = small(positions_at, DType::i64, {rows});
  local_.groups[0].rows = rows;
  local_.few_rows = std::min(local_.few_rows, rows);
}

// For every window that a layer has.
void ContextPass::write_calls(std::span<const std::int64_t> windows) {
  std::vector<std::int64_t> different(windows.begin(), windows.end());
  different.push_back(0);
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  if (splits_) {
    const AttentionGroup group = on_host(whole_, whole_.groups[0]);
    const SpreadSequence sequence(group, 0, whole_.pool->options().page_size, share_);
    for (int r = 0; r < ranks_.size(); ++r) {
      most_pages_ = std::max<std::int64_t>(most_pages_, std::ssize(sequence.own_pages(r)));
    }
    const std::vector<std::int32_t> own = sequence.own_pages(share_.rank);
    own_pages_ = std::ssize(own);
    own_page_list_ = add(own);
    std::vector<std::int32_t> in_order(static_cast<std::size_t>(most_pages_));
    std::iota(in_order.begin(), in_order.end(), 0);
    block_table_ = add(in_order);
    for (const std::int64_t window : different) write_ring(sequence, window);
  } else {
    for (const std::int64_t window : different) {
      write_whole_rows(whole_.groups, window, false);
      write_whole_rows(whole_.logit_groups, window, true);
    }
  }
}

void ContextPass::upload(Context& ctx) {
  // The device's copy. The host's lives as long as this object, and a copy has read it at once.
  const std::int64_t bytes = std::ssize(small_) * 4;
  data_ = reinterpret_cast<char*>(small_.data());
  if (!device_.is_cpu()) {
    data_ = frame_.take<char>(bytes);
    if (!ctx.workspace().is_counting()) {
      copy_bytes(ctx, data_, device_, small_.data(), Device::cpu(), bytes);
    }
  }
}

template <typename T>
std::int64_t ContextPass::add(const std::vector<T>& numbers) {
  const auto place = small_.size(), size = numbers.size() * (sizeof(T) / 4);
  small_.resize(place + size);
  if (!numbers.empty()) std::memcpy(small_.data() + place, numbers.data(), size * 4);
  return static_cast<std::int64_t>(place);
}

Tensor ContextPass::small(std::int64_t place, DType dtype,
                          std::initializer_list<std::int64_t> shape) const {
  return {static_cast<void*>(data_ + 4 * place), dtype, shape, device_};
}

void ContextPass::keep(const Numbers& numbers, Call call) {
  call.sequences = std::ssize(numbers.lengths);
  call.width = numbers.width;
  call.lengths = add(numbers.lengths);
  if (!numbers.table.empty()) call.table = add(numbers.table);
  if (!numbers.holes.empty()) call.holes = add(numbers.holes);
  if (!numbers.offsets.empty()) call.offsets = add(numbers.offsets);
  calls_.push_back(call);
}

const ContextPass::Call& ContextPass::call_for(const model::CachedAttentionArgs& heads,
                                               int turn) const {
  const bool of_logits = !splits_ && heads.groups.data() != local_.groups.data();
  for (const Call& call : calls_) {
    if (call.window == heads.window && call.of_logits == of_logits && call.turn == turn) {
      return call;
    }
  }
  fail(ErrorCode::invalid_argument,
       "a layer has a window of {} tokens that the model does not name", heads.window);
}

PageTable ContextPass::pages_of(const Call& call) const {
  PageTable result{.lengths = small(call.lengths, DType::i32, {call.sequences})};
  if (call.table >= 0) {
    result.table = small(call.table, DType::i32, {call.sequences, call.width});
  } else {  // page i of a block is its i-th, for every sequence
    result.table = small(block_table_, DType::i32, {1, most_pages_});
    result.table.shape[0] = call.sequences;
    result.table.strides[0] = 0;
  }
  if (call.holes >= 0) result.holes = small(call.holes, DType::i32, {call.sequences, 2});
  return result;
}

void ContextPass::turn_and_append(Context& ctx, const model::TurnAndAppendArgs& heads) const {
  const std::int64_t rows = local_.tokens;
  // In runs of rows that are stored, or not. A GPU leaves out the latter by itself, the CPU refuses
  // a slot that is none.
  const auto* slots = local_.slots.ptr<const std::int32_t>();
  const auto is_own = [&](std::int64_t row) { return !device_.is_cpu() || slots[row] >= 0; };
  for (std::int64_t begin = 0; begin < rows;) {
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
void ContextPass::write_whole_rows(std::span<const AttentionGroup> groups, std::int64_t window,
                                   bool of_logits) {
  if (groups.empty()) return;
  Numbers numbers;
  for (const AttentionGroup& group : groups) {
    numbers.width = std::max(numbers.width, group.pages.table.size(1));
  }
  for (const AttentionGroup& of_device : groups) {
    const AttentionGroup group = on_host(whole_, of_device);
    for (std::int64_t s = 0; s < group.sequences; ++s) {
      const SpreadSequence sequence(group, s, whole_.pool->options().page_size, share_);
      const Seen queries = queries_of(group, s);
      std::vector<std::int32_t> own = sequence.own_pages(share_.rank);
      own.resize(static_cast<std::size_t>(numbers.width));
      for (std::int64_t i = queries.begin; i < queries.end; ++i) {
        numbers.table.insert(numbers.table.end(), own.begin(), own.end());
        if (sequence.keys() == 0) {  // a row for nobody has no keys
          numbers.lengths.push_back(0);
          numbers.holes.insert(numbers.holes.end(), {0, 0});
          continue;
        }
        const std::int64_t query = sequence.keys() - (queries.end - i);
        const Seen seen = seen_by(query, group.mask, window);
        const std::int64_t begin = sequence.slots_before(sequence.slot(seen.begin), share_.rank);
        const std::int64_t end = sequence.slots_before(sequence.slot(seen.end), share_.rank);
        numbers.lengths.push_back(static_cast<std::int32_t>(end - begin));
        numbers.holes.insert(numbers.holes.end(), {0, static_cast<std::int32_t>(begin)});
      }
    }
  }
  keep(numbers, {.window = window, .of_logits = of_logits});
}

void ContextPass::attend_whole_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const std::int64_t rows = heads.q.size(0), n_heads = heads.q.size(1), dim = heads.q.size(2);
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
                  .pages = pages_of(call_for(heads, 0))});
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

// ---- rows spread over the ranks -----------------------------------------------------------------

// The own rows against the pages of each rank, in the order in which these come by. Rows of one
// page share a sequence where no window moves with them: they see the owner's keys up to their
// page; of their own rank, up to themselves. With a window, each row sees keys of its own.
void ContextPass::write_ring(const SpreadSequence& sequence, std::int64_t window) {
  const std::int64_t page_size = whole_.pool->options().page_size;
  const Mask& mask = whole_.groups[0].mask;
  const bool has_window = window > 0 || mask.kind() == Mask::Kind::window;
  std::vector<std::int64_t> slots;  // of the sequence
  for (const std::int64_t row : own_rows_) {
    slots.push_back(sequence.slot(sequence.keys() - whole_.tokens + row));
  }
  for (int turn = 0; turn < ranks_.size(); ++turn) {
    const int owner = (share_.rank + share_.size - turn) % share_.size;
    Numbers numbers;
    numbers.width = most_pages_;
    numbers.offsets.push_back(0);
    for (std::size_t i = 0; i < slots.size();) {
      std::int64_t begin = 0, end = 0;
      if (has_window) {
        const Seen seen = seen_by(slots[i] - sequence.slot(0), mask, window);
        begin = sequence.slots_before(sequence.slot(seen.begin), owner);
        end = sequence.slots_before(sequence.slot(seen.end), owner);
        numbers.holes.insert(numbers.holes.end(), {0, static_cast<std::int32_t>(begin)});
        ++i;
      } else {
        const std::int64_t page = slots[i] / page_size;
        while (i < slots.size() && slots[i] / page_size == page) ++i;
        end = sequence.slots_before(turn == 0 ? slots[i - 1] + 1 : page * page_size, owner);
      }
      numbers.offsets.push_back(static_cast<std::int32_t>(i));
      numbers.lengths.push_back(static_cast<std::int32_t>(end - begin));
    }
    keep(numbers, {.window = window, .turn = turn});
  }
}

void ContextPass::attend_split_rows(Context& ctx, const model::CachedAttentionArgs& heads) const {
  const PagePoolOptions& pool = whole_.pool->options();
  const int size = ranks_.size(), rank = ranks_.rank();
  const std::int64_t n_heads = heads.q.size(1), dim = heads.q.size(2), rows = heads.q.size(0);
  Workspace::Frame frame(ctx.workspace());
  const auto take_block = [&] {
    return frame.take(pool.dtype, {2, most_pages_, pool.page_size, pool.kv_heads, pool.head_dim});
  };
  Tensor here = take_block(), next = take_block();
  const bool counts = ctx.workspace().is_counting();
  // The own pages, one after the other: rows of a table.
  const auto gather = [&](const Tensor& pages, int which) {
    const Tensor to = here.select(0, which).slice(0, 0, own_pages_);
    embedding(ctx, {.ids = small(own_page_list_, DType::i32, {own_pages_}),
                    .table = Weight::dense(pages.view({pages.size(0), -1})),
                    .out = to.view({own_pages_, -1})});
  };
  gather(whole_.pool->keys(heads.layer), 0);
  gather(whole_.pool->values(heads.layer), 1);
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
    const Call& call = call_for(heads, turn);
    attention(ctx, {.q = as_sequence(heads.q),
                    .k = here.select(0, 0),
                    .v = here.select(0, 1),
                    .out = out,
                    .lse = lse,
                    .mask = turn == 0 && call.holes < 0 ? Mask::causal() : Mask::full(),
                    .q_offsets = small(call.offsets, DType::i32, {call.sequences + 1}),
                    .pages = pages_of(call)});
    merge_partial(ctx, sums, 0, out, lse);
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
  fill_zeros(ctx, wanted);
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
