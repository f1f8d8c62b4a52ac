#include "model/architectures/forward.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/fail.h"
#include "core/format.h"
#include "core/workspace.h"
#include "tessera/attention.h"
#include "tessera/embedding.h"
#include "tessera/linear.h"
#include "tessera/rotary_append.h"

namespace tessera::model {
namespace {

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (holds) return;
  fail(ErrorCode::invalid_argument, "forward: {}",
       fmt::format(format, std::forward<Args>(args)...));
}

// What a query may see under the cache's policy and in the layer's own window.
Mask narrowed(const Mask& mask, std::int64_t window) {
  if (window == 0) return mask;
  switch (mask.kind()) {
    case Mask::Kind::causal:
      return Mask::window(window - 1, 0);
    case Mask::Kind::window:
      return Mask::window(mask.left() < 0 ? window - 1 : std::min(mask.left(), window - 1),
                          mask.right());
    default:
      // Sinks, whose caches make_cache() refuses where the window would hide a key that stays.
      return mask;
  }
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
  require(args.step && args.cache, "a cache and its step must be given");
  const KvCacheOptions& cache = args.cache->options();
  require(cache.layers == config.layers && cache.kv_heads == config.kv_heads &&
              cache.head_dim == config.head_dim && cache.dtype == model.dtype(),
          "the cache is {}[{} layers, {} heads, {}], but the model needs {}[{} layers, {} heads, "
          "{}]; make it with make_cache()",
          name(cache.dtype), cache.layers, cache.kv_heads, cache.head_dim, name(model.dtype()),
          config.layers, config.kv_heads, config.head_dim);
  require(args.ids.defined() && args.ids.dtype == DType::i32 && args.ids.rank == 1 &&
              args.ids.size(0) > 0,
          "ids must be i32 [tokens], at least one, got {}", args.ids);
  require(args.ids.device == ctx.device(), "ids are on {}, but the Context is on {}",
          to_string(args.ids.device), to_string(ctx.device()));
  require(args.step->tokens == args.ids.size(0), "{} ids were given for a step of {} tokens",
          args.ids.size(0), args.step->tokens);
  if (!args.logits.defined()) return;
  require(args.logits.dtype == DType::f32 && args.logits.rank == 2 &&
              args.logits.size(0) <= args.ids.size(0) && args.logits.size(1) == config.vocab,
          "logits must be f32 [rows, {}] with at most {} rows, got {}", config.vocab,
          args.ids.size(0), args.logits);
}

std::int64_t rows_to_finish(const ForwardArgs& args) {
  if (args.observe) return args.ids.size(0);
  return args.logits.defined() ? args.logits.size(0) : 0;
}

}  // namespace

Tensor last_rows(const Tensor& tensor, std::int64_t rows) {
  return tensor.slice(0, tensor.size(0) - rows, tensor.size(0));
}

void run_pass(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts) {
  check_forward(ctx, model, args);
  const std::int64_t tokens = args.ids.size(0), rows = rows_to_finish(args);
  const std::int64_t layers = model.config().layers, hidden = model.config().hidden;
  Workspace::Frame frame(ctx.workspace());
  const Tensor x = frame.take(model.dtype(), {tokens, hidden});

  embedding(ctx, {.ids = args.ids, .table = parts.embedding, .out = x});
  if (args.observe) args.observe(0, x);
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool last = i == layers - 1;
    parts.run_layer(i, x, last ? rows : tokens);
    if (args.observe && !last) args.observe(i + 1, x);
  }
  if (rows == 0) return;

  const Tensor normed = frame.take(model.dtype(), {rows, hidden});
  parts.final_norm(last_rows(x, rows), normed);
  if (args.observe) args.observe(layers, normed);
  if (!args.logits.defined()) return;
  linear(ctx,
         {.x = last_rows(normed, args.logits.size(0)), .weight = parts.head, .out = args.logits});
}

void turn_and_append(Context& ctx, const ForwardArgs& args, const TurnAndAppendArgs& heads) {
  const CacheStep& step = *args.step;
  rotary_append(ctx, {.q = heads.q,
                      .k = heads.k,
                      .v = heads.v,
                      .positions = step.positions,
                      .rope = heads.rope,
                      .turn_keys = !step.rope_on_read,
                      .slots = step.slots,
                      .k_pages = args.cache->keys(heads.layer),
                      .v_pages = args.cache->values(heads.layer),
                      .q_out = heads.q});
}

void cached_attention(Context& ctx, const ForwardArgs& args, const CachedAttentionArgs& heads) {
  const CacheStep& step = *args.step;
  const std::int64_t rows = heads.q.size(0);
  // Where each token sees a cache of its own, the last tokens are the last sequences.
  const std::int64_t batch = step.batch == 1 ? 1 : rows;
  PageTable pages = step.pages;
  for (Tensor* part : {&pages.table, &pages.lengths, &pages.holes}) {
    if (part->defined()) *part = last_rows(*part, batch);
  }
  attention(ctx, {.q = in_batches(heads.q, batch),
                  .k = args.cache->keys(heads.layer),
                  .v = args.cache->values(heads.layer),
                  .out = in_batches(heads.out, batch),
                  .mask = narrowed(step.mask, heads.window),
                  .pages = pages,
                  .rope_on_read = step.rope_on_read ? heads.rope : Rope{}});
}

}  // namespace tessera::model
