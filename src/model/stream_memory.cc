#include "model/stream_memory.h"

#include <algorithm>
#include <string>

#include "core/available_memory.h"
#include "core/checked.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "model/memory_refusal.h"
#include "tessera/sample.h"

namespace tessera {
namespace model {
namespace {

using Kind = CachePolicy::Kind;

// `rolling`: a step of sinks once the stream has outgrown them, where each token is a sequence.
std::int64_t count_step(Context& ctx, const Model& model, const KvCacheOptions& options,
                        std::int64_t logit_rows, bool rolling) {
  const Workspace::Count count(ctx.workspace());
  KvCache cache(ctx, options);
  const std::int64_t of_cache = count.used_bytes();
  if (rolling) cache.skip(options.policy.n_sink + options.policy.window);
  const bool full = options.policy.kind == Kind::full;
  const std::int64_t n =
      cache.step_size(full ? std::min(options.max_step, options.max_tokens) : options.max_step);
  Workspace::Frame frame(ctx.workspace());
  const Tensor ids = frame.take(DType::i32, {options.max_step});
  const Tensor logits = frame.take(DType::f32, {logit_rows, model.config().vocab});
  const Tensor drawn = frame.take(DType::i32, {1});
  const CacheStep step = cache.step(ctx, n);
  model.forward(ctx, {.ids = ids.slice(0, 0, n),
                      .step = &step,
                      .cache = &cache,
                      .logits = logits.slice(0, 0, std::min(logit_rows, n))});
  // A GPU draws the next token where the logits are (generate.cc), in the room of the step.
  if (!ctx.device().is_cpu()) sample(ctx, {.logits = logits.slice(0, 0, 1), .ids = drawn});
  return count.peak_bytes() - of_cache;
}

// Packed layers are copies on every device, dense layers on a GPU only.
std::int64_t packed_layer_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const LayerInfo& layer : model.linear_layers()) {
    if (layer.weight.format != Format::dense) bytes += layer.weight.bytes();
  }
  return bytes;
}

CacheRequest cache_request(Context& ctx, const Model& model, const KvCacheOptions& options,
                           std::int64_t logit_rows) {
  return {.memory = available_memory(ctx, packed_layer_bytes(model)),
          .weights = model.weight_bytes(),
          .kv = kv_cache_bytes(options),
          .workspace = model.workspace_bytes(ctx, options, logit_rows),
          .policy = options.policy,
          .tokens = options.max_tokens};
}

[[noreturn]] void refuse_cache(Context& ctx, const Model& model, const KvCacheOptions& options,
                               std::int64_t logit_rows, const std::string& reason) {
  CacheRequest request = cache_request(ctx, model, options, logit_rows);
  KvCacheOptions smaller = options;
  std::int64_t& tokens =
      options.policy.kind == Kind::full ? smaller.max_tokens : smaller.policy.window;
  request.largest = largest_that_fits(tokens, request.memory.bytes, [&](std::int64_t n) {
    tokens = n;
    return checked_add(kv_cache_bytes(smaller), model.workspace_bytes(ctx, smaller, logit_rows));
  });
  throw Error(ErrorCode::out_of_memory, refusal(request) + reason);
}

}  // namespace

std::int64_t count_workspace(Context& ctx, const Model& model, const KvCacheOptions& cache,
                             std::int64_t logit_rows) {
  const std::int64_t bytes = count_step(ctx, model, cache, logit_rows, false);
  if (cache.policy.kind != Kind::sinks) return bytes;
  return std::max(bytes, count_step(ctx, model, cache, logit_rows, true));
}

}  // namespace model

std::int64_t Model::workspace_bytes(Context&, const KvCacheOptions&, std::int64_t) const {
  return 0;
}

void Model::reserve_workspace(Context& ctx, const KvCacheOptions& cache,
                              std::int64_t logit_rows) const {
  ctx.workspace().reserve(workspace_bytes(ctx, cache, logit_rows));
}

KvCache Model::make_cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                          std::int64_t max_step, std::int64_t logit_rows) const {
  if (policy.kind == CachePolicy::Kind::sinks) {
    const std::int64_t kept = policy.n_sink + policy.window;
    for (const std::int64_t window : config_.windows) {
      if (window == 0 || window >= kept) continue;
      fail(ErrorCode::unsupported,
           "{} keeps {} tokens, but layers of this model see only the last {}: choose sinks and a "
           "window of at most {} tokens together",
           to_string(policy), kept, window, window);
    }
  }
  const KvCacheOptions options{.layers = config_.layers,
                               .kv_heads = config_.kv_heads,
                               .head_dim = config_.head_dim,
                               .dtype = dtype_,
                               .policy = policy,
                               .max_tokens = max_tokens,
                               .max_step = max_step};
  const model::CacheRequest request = model::cache_request(ctx, *this, options, logit_rows);
  if (!request.fits()) model::refuse_cache(ctx, *this, options, logit_rows, "");
  try {
    KvCache cache(ctx, options);
    ctx.workspace().reserve(request.workspace);
    return cache;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    // Another program took the memory meanwhile.
    model::refuse_cache(ctx, *this, options, logit_rows, fmt::format(" ({})", error.what()));
  }
}

}  // namespace tessera
