#include "model/stream_memory.h"

#include <algorithm>

#include "core/fail.h"
#include "core/workspace.h"

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
  const CacheStep step = cache.step(ctx, n);
  model.forward(ctx, {.ids = ids.slice(0, 0, n),
                      .step = &step,
                      .cache = &cache,
                      .logits = logits.slice(0, 0, std::min(logit_rows, n))});
  return count.peak_bytes() - of_cache;
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
           "window of {} tokens together at most",
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
  KvCache cache(ctx, options);
  reserve_workspace(ctx, options, logit_rows);
  return cache;
}

}  // namespace tessera
