#include "engine/engine_limits.h"

#include <algorithm>

#include "core/checked.h"
#include "core/fail.h"

namespace tessera::engine {
namespace {

void require_engine_option(bool holds, const char* name, std::int64_t value, const char* accepted) {
  if (holds) return;
  fail(ErrorCode::invalid_argument, "{} is {}; it must be {}", name, value, accepted);
}

}  // namespace

EngineOptions complete_options(EngineOptions options, const Model& model) {
  require_engine_option(options.context >= 0, "context", options.context, "0 (as trained) or more");
  require_engine_option(options.max_sequences >= 1, "max_sequences", options.max_sequences,
                        "1 or more");
  require_engine_option(options.max_step_tokens >= 1, "max_step_tokens", options.max_step_tokens,
                        "1 or more");
  require_engine_option(options.max_waiting >= 0, "max_waiting", options.max_waiting, "0 or more");
  require_engine_option(options.pages >= 0, "pages", options.pages, "0 (as many as fit) or more");
  require_engine_option(options.page_size >= 1, "page_size", options.page_size, "1 or more");
  if (options.context == 0) options.context = model.config().max_positions;
  options.max_step_tokens = std::max(options.max_step_tokens, options.max_sequences);
  return options;
}

EngineOptions options_of(KvCache& cache) {
  const KvCacheOptions& options = cache.options();
  return {.context = options.max_tokens,
          .max_sequences = 1,
          .max_step_tokens = options.max_step,
          .pages = cache.pool().options().pages,
          .page_size = options.page_size,
          .cache_dtype = options.dtype,
          .prefix_cache = false};
}

std::int64_t most_logits(const EngineOptions& options) {
  const bool drafts = options.speculation.kind != SpeculationOptions::Kind::off;
  const std::int64_t each = 1 + (drafts ? options.speculation.max_tokens : 0);
  return std::min(checked_mul(options.max_sequences, each), options.max_step_tokens);
}

std::int64_t sequence_pages(const EngineOptions& options) {
  const std::int64_t tokens = checked_add(options.context, options.max_step_tokens);
  return checked_add(ceil_div(tokens, options.page_size), 2);
}

CacheBatchLimits batch_limits(const EngineOptions& options, const Context& ctx) {
  return {.max_tokens = options.max_step_tokens,
          .max_sequences = options.max_sequences,
          .max_pages_of_a_sequence = sequence_pages(options),
          .pads = ctx.device().is_cuda() && ctx.graphs(),
          .batch_invariant = options.batch_invariant};
}

PoolRequest pool_request(const EngineOptions& options, const Context& ctx) {
  return {.limits = batch_limits(options, ctx),
          .logit_rows = most_logits(options),
          .pages = options.pages,
          .page_size = options.page_size,
          .prefix_cache = options.prefix_cache,
          .dtype = options.cache_dtype};
}

}  // namespace tessera::engine
