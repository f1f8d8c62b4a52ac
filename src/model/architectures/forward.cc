#include "model/architectures/forward.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "core/cache_dtype.h"
#include "core/fail.h"
#include "core/format.h"
#include "core/workspace.h"
#include "model/architectures/context_pass.h"
#include "tessera/append_attention.h"
#include "tessera/attention.h"
#include "tessera/convert.h"
#include "tessera/embedding.h"
#include "tessera/linear.h"
#include "tessera/rotary_append.h"
#include "tessera/select.h"

namespace tessera::model {
namespace {

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (holds) return;
  fail(ErrorCode::invalid_argument, "forward: {}",
       fmt::format(format, std::forward<Args>(args)...));
}

// [rows, heads, dim] as [batch, rows / batch, heads, dim].
Tensor in_batches(const Tensor& tensor, std::int64_t batch) {
  const std::int64_t each = tensor.size(0) / batch;
  const std::array<std::int64_t, 4> shape{batch, each, tensor.size(1), tensor.size(2)};
  const std::array<std::int64_t, 4> strides{each * tensor.stride(0), tensor.stride(0),
                                            tensor.stride(1), tensor.stride(2)};
  return Tensor(tensor.data, tensor.dtype, shape, strides, tensor.device);
}

void check_forward(const Context& ctx, const Model& model, const ForwardArgs& args) {
  const ModelConfig& config = model.config();
  require(args.step != nullptr && args.step->pool != nullptr && args.step->tokens > 0,
          "a step of a cache must be given");
  const CacheStep& step = *args.step;
  const PagePoolOptions& pool = step.pool->options();
  require(pool.layers == config.layers && pool.kv_heads == config.kv_heads &&
              pool.head_dim == config.head_dim && can_store(pool.dtype, model.dtype()),
          "the cache is {}[{} layers, {} heads, {}], but the model needs {}[{} layers, {} heads, "
          "{}]; make it with make_cache() or make_pool()",
          name(pool.dtype), pool.layers, pool.kv_heads, pool.head_dim, name(model.dtype()),
          config.layers, config.kv_heads, config.head_dim);
  require(step.pool->device() == ctx.device(), "the step is on {}, but the Context is on {}",
          to_string(step.pool->device()), to_string(ctx.device()));
  if (!args.logits.defined()) return;
  require(step.logits > 0, "logits were given, but the step asks for none");
  require(args.logits.dtype == DType::f32 && args.logits.rank == 2 &&
              args.logits.size(0) == step.logits && args.logits.size(1) == config.vocab,
          "logits must be f32 [{}, {}], the rows that the step asks for, got {}", step.logits,
          config.vocab, args.logits);
}

// Rows [begin, end) of the step on their way into the cache. Queries are rotated in place.
RotaryAppendArgs append_args(const CacheStep& step, const RotateAndAppendArgs& heads,
                             std::int64_t begin, std::int64_t end, bool rope_on_read) {
  const auto rows = [&](const Tensor& tensor) { return tensor.slice(0, begin, end); };
  return {.q = rows(heads.q),
          .k = rows(heads.k),
          .v = rows(heads.v),
          .positions = rows(step.positions),
          .rope = heads.rope,
          .rotate_keys = !rope_on_read,
          .slots = rows(step.slots),
          .k_pages = step.pool->keys(heads.layer),
          .v_pages = step.pool->values(heads.layer),
          .q_out = rows(heads.q),
          .k_scales = step.pool->key_scales(heads.layer),
          .v_scales = step.pool->value_scales(heads.layer)};
}

// Attention of a group over the cache.
AttentionArgs attention_args(const CacheStep& step, const CachedAttentionArgs& heads,
                             const AttentionGroup& group) {
  const auto rows = [&](const Tensor& tensor) {
    return in_batches(tensor.slice(0, group.first_row, group.first_row + group.rows),
                      group.q_offsets.defined() ? 1 : group.sequences);
  };
  return {.q = rows(heads.q),
          .k = step.pool->keys(heads.layer),
          .v = step.pool->values(heads.layer),
          .out = rows(heads.out),
          .mask = narrowed(group.mask, heads.window),
          .q_offsets = group.q_offsets,
          .pages = group.pages,
          .rope_on_read = group.rope_on_read ? heads.rope : Rope{},
          .k_scales = step.pool->key_scales(heads.layer),
          .v_scales = step.pool->value_scales(heads.layer),
          .fixed_splits = step.batch_invariant,
          .many_queries = group.many_queries};
}

FinishedRows logit_rows(const CacheStep& step) {
  if (step.wants_all_logits()) return all_rows(step);
  return {.count = step.logits,
          .first = step.first_logit_row,
          .index = step.logit_rows,
          .groups = step.logit_groups,
          .fixed = step.batch_invariant ? step.few_logits : -1};
}

FinishedRows rows_of_last_layer(const ForwardArgs& args) {
  if (args.observe) return all_rows(*args.step);
  return args.logits.defined() ? logit_rows(*args.step) : FinishedRows{};
}

// The rows of the table for these ids. Each process has some of them, and zeros for the others.
void embed(Context& ctx, const ForwardArgs& args, const PassParts& parts, std::int64_t vocab,
           const Tensor& x) {
  const Shard& shard = parts.shard;
  embedding(ctx, {.ids = args.step->ids,
                  .table = parts.embedding,
                  .out = x,
                  .drawn = args.drawn,
                  .first_row = shard.vocab.begin,
                  .all_rows = shard.is_part() ? vocab : 0});
  shard.add_up(ctx, x);
}

// Whether the ranks send only their largest logits. The host puts them into their places. They are
// a small part of all logits, so that this takes no more memory than sending all would.
bool sends_largest(const Context& ctx, std::int64_t largest, std::int64_t vocab, int size) {
  if (largest == 0 || !ctx.device().is_cpu()) return false;
  const std::int64_t unit = vocab_unit(vocab, size);
  std::int64_t smallest = vocab;
  for (int r = 0; r < size; ++r) {
    smallest = std::min(smallest, part_of(vocab, unit, r, size).size(vocab));
  }
  return 4 * largest <= smallest;
}

// The largest logits of each part [rows, its vocabulary], 8 bytes for each, in rows of -inf. Among
// them are the largest of all. Rank 0 alone gets them: it draws.
void gather_largest(Context& ctx, const Shard& shard, const Tensor& own, std::int64_t largest,
                    const Tensor& logits) {
  const std::int64_t rows = own.size(0), vocab = logits.size(1);
  const int size = shard.ranks->size();
  Workspace::Frame frame(ctx.workspace());
  const Tensor sent = frame.take(DType::i32, {2, rows, largest});  // values, ids
  const Tensor all = frame.take(DType::i32, {size, 2, rows, largest});
  const auto values_of = [&](const Tensor& ints) {
    return Tensor(ints.select(0, 0).data, DType::f32, {rows, largest}, ints.device);
  };
  top_k(ctx, {.x = own, .values = values_of(sent), .indices = sent.select(0, 1)});
  if (ctx.workspace().is_counting()) return;
  shard.ranks->all_gather(ctx, sent, all);
  if (!shard.is_first()) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* to = logits.select(0, row).ptr<float>();
    std::fill_n(to, vocab, -std::numeric_limits<float>::infinity());
    for (int r = 0; r < size; ++r) {
      const std::int64_t begin = part_of(vocab, vocab_unit(vocab, size), r, size).begin;
      const Tensor from = all.select(0, r);
      const auto* values = values_of(from).select(0, row).ptr<const float>();
      const auto* ids = from.select(0, 1).select(0, row).ptr<const std::int32_t>();
      for (std::int64_t i = 0; i < largest; ++i) to[begin + ids[i]] = values[i];
    }
  }
}

// The head's product. Each process computes the logits of its part of the vocabulary, and gets all
// of them, or the `largest`.
void find_logits(Context& ctx, const PassParts& parts, const Tensor& x, const Tensor& logits,
                 std::int64_t fixed_rows, std::int64_t largest) {
  const Shard& shard = parts.shard;
  if (!shard.is_part()) {
    linear(ctx, {.x = x, .weight = parts.head, .out = logits, .fixed_rows = fixed_rows});
    return;
  }
  const std::int64_t rows = x.size(0), vocab = logits.size(1);
  const int size = shard.ranks->size();
  const std::int64_t unit = vocab_unit(vocab, size), widest = largest_part(vocab, unit, size);
  Workspace::Frame frame(ctx.workspace());
  const Tensor own = frame.take(DType::f32, {rows, widest});
  const Tensor part_logits = own.slice(1, 0, shard.vocab.size(vocab));
  linear(ctx, {.x = x, .weight = parts.head, .out = part_logits, .fixed_rows = fixed_rows});
  if (sends_largest(ctx, largest, vocab, size)) {
    return gather_largest(ctx, shard, part_logits, largest, logits);
  }
  const Tensor all = frame.take(DType::f32, {size, rows, widest});
  if (ctx.workspace().is_counting()) return;
  shard.ranks->all_gather(ctx, own, all);
  for (int r = 0; r < size; ++r) {
    const Range part = part_of(vocab, unit, r, size);
    convert(ctx, {.x = all.select(0, r).slice(1, 0, part.size(vocab)),
                  .out = logits.slice(1, part.begin, part.end)});
  }
}

// From ids to what the head reads, if one call has a kernel for all layers. False: x is the
// embedding, and the layers are still to run.
bool run_at_once(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts,
                 const Tensor& x) {
  const bool single = is_single_token(ctx, args);
  if (single && parts.all_layers_embed && parts.run_all_layers(x)) return true;
  embed(ctx, args, parts, model.config().vocab, x);
  if (args.observe) args.observe(0, x);
  return single && !parts.all_layers_embed && parts.run_all_layers(x);
}

}  // namespace

FinishedRows all_rows(const CacheStep& step) {
  return {.count = step.tokens,
          .first = 0,
          .groups = step.groups,
          .fixed = step.batch_invariant ? step.few_rows : -1};
}

Tensor take_rows(Context& ctx, Workspace::Frame& frame, const FinishedRows& rows,
                 const Tensor& matrix) {
  if (rows.first >= 0) return matrix.slice(0, rows.first, rows.first + rows.count);
  const Tensor copy = frame.take(matrix.dtype, {rows.count, matrix.size(1)});
  embedding(ctx, {.ids = rows.index, .table = Weight::dense(matrix), .out = copy});
  return copy;
}

bool is_single_token(const Context& ctx, const ForwardArgs& args) {
  const CacheStep& step = *args.step;
  return ctx.device().is_cuda() && step.tokens == 1 && step.wants_all_logits() &&
         args.logits.defined() && !args.observe && args.context == nullptr &&
         !step.batch_invariant && step.groups.size() == 1 && !step.groups.front().rope_on_read;
}

void run_pass(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts) {
  check_forward(ctx, model, args);
  const CacheStep& step = *args.step;
  const std::int64_t layers = model.config().layers, hidden = model.config().hidden;
  Workspace::Frame frame(ctx.workspace());
  const Tensor x = frame.take(model.dtype(), {step.tokens, hidden});

  if (run_at_once(ctx, model, args, parts, x)) {
    return find_logits(ctx, parts, x, args.logits, logit_rows(step).fixed, args.largest_logits);
  }
  for (std::int64_t i = 0; i < layers - 1; ++i) {
    ctx.trace().enter_layer(i);
    parts.run_layer(i, x, all_rows(step), x);
    if (args.observe) args.observe(i + 1, x);
  }
  const FinishedRows rows = rows_of_last_layer(args);
  const Tensor last = rows.count > 0 ? take_rows(ctx, frame, rows, x) : Tensor{};
  ctx.trace().enter_layer(layers - 1);
  parts.run_layer(layers - 1, x, rows, last);
  ctx.trace().enter_layer(TraceEntry::kNoLayer);
  if (rows.count == 0) return;

  const Tensor normed = frame.take(model.dtype(), {rows.count, hidden});
  parts.final_norm(last, normed);
  if (args.observe) args.observe(layers, normed);
  if (!args.logits.defined()) return;
  const Tensor wanted = args.observe ? take_rows(ctx, frame, logit_rows(step), normed) : normed;
  find_logits(ctx, parts, wanted, args.logits, logit_rows(step).fixed, args.largest_logits);
}

Mask narrowed(const Mask& mask, std::int64_t window) {
  if (window == 0) return mask;
  switch (mask.kind()) {
    case Mask::Kind::causal:
      return Mask::window(window - 1, 0);
    case Mask::Kind::window:
      return Mask::window(mask.left() < 0 ? window - 1 : std::min(mask.left(), window - 1),
                          mask.right());
    default:
      // Sinks: make_cache() refuses caches in which the window would hide a key that stays.
      return mask;
  }
}

namespace {
LayerPages layer_pages(const PagePool& pool, Tensor (PagePool::*of_layer)(std::int64_t) const) {
  const Tensor first = (pool.*of_layer)(0);
  if (pool.options().layers == 1) return {.first = first};
  const auto* next = static_cast<const char*>((pool.*of_layer)(1).data);
  return {.first = first,
          .stride = (next - static_cast<const char*>(first.data)) / size_of(first.dtype)};
}
}  // namespace

LayerPages key_pages(const PagePool& pool) { return layer_pages(pool, &PagePool::keys); }
LayerPages value_pages(const PagePool& pool) { return layer_pages(pool, &PagePool::values); }

void rotate_and_append(Context& ctx, const ForwardArgs& args, const RotateAndAppendArgs& heads) {
  if (args.context != nullptr) return args.context->rotate_and_append(ctx, heads);
  const CacheStep& step = *args.step;
  const std::vector<AttentionGroup>& groups = step.groups;
  // One call for neighbouring groups that agree on when keys are rotated.
  for (std::size_t i = 0; i < groups.size();) {
    const bool on_read = groups[i].rope_on_read;
    const std::int64_t begin = groups[i].first_row;
    while (i < groups.size() && groups[i].rope_on_read == on_read) ++i;
    const std::int64_t end = i < groups.size() ? groups[i].first_row : step.tokens;
    rotary_append(ctx, append_args(step, heads, begin, end, on_read));
  }
}

void cached_attention(Context& ctx, const ForwardArgs& args, const CachedAttentionArgs& heads) {
  if (args.context != nullptr) return args.context->attend(ctx, heads);
  for (const AttentionGroup& group : heads.groups) {
    attention(ctx, attention_args(*args.step, heads, group));
  }
}

bool append_and_attend(Context& ctx, const ForwardArgs& args, const FinishedRows& rows,
                       const AppendAndAttendArgs& heads) {
  const CacheStep& step = *args.step;
  if (args.context != nullptr || step.few_rows != step.tokens ||
      rows.groups.data() != step.groups.data()) {
    return false;
  }
  const CachedAttentionArgs attends{.q = heads.append.q,
                                    .out = heads.out,
                                    .layer = heads.append.layer,
                                    .window = heads.window,
                                    .rope = heads.append.rope};
  for (const AttentionGroup& group : step.groups) {
    append_attention(ctx, {.append = append_args(step, heads.append, group.first_row,
                                                 group.first_row + group.rows, group.rope_on_read),
                           .attention = attention_args(step, attends, group),
                           .settled = true});  // embedding() is between steps, and does not overlap
  }
  return true;
}

}  // namespace tessera::model
