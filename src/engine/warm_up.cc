#include "engine/warm_up.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "engine/engine_limits.h"

namespace tessera::engine {
namespace {

// Tokens of one sequence, or of two, of which the first brings one.
struct Steps {
  Context& ctx;
  PagePool& pool;
  CacheBatch& batch;
  StepRunner& runner;
  const EngineOptions& options;
  std::vector<std::int32_t> ids;  // any

  bool run(std::int64_t tokens, std::int64_t logits, bool beside) {
    CacheSequence stream(pool, CachePolicy::full(), options.context, options.max_step_tokens);
    CacheSequence prompt(pool, CachePolicy::full(), options.context, options.max_step_tokens);
    const std::int64_t rest = tokens - (beside ? 1 : 0);
    if (rest > options.context) return false;
    const std::int64_t pages = prompt.pages_for(rest) + (beside ? 1 : 0);
    if (prompt.step_size(rest) < rest || pages > pool.free_pages()) return false;
    std::vector<CacheBatch::Part> parts;
    const auto add = [&](CacheSequence& sequence, std::int64_t count, std::int64_t wanted) {
      parts.push_back({.sequence = &sequence,
                       .ids = std::span(ids).first(static_cast<std::size_t>(count)),
                       .logit_rows = wanted});
    };
    if (beside) add(stream, 1, 1);
    add(prompt, rest, logits);
    runner.forward(batch.step(ctx, parts));
    batch.forget(stream);
    batch.forget(prompt);
    return true;
  }
};

}  // namespace

void warm_up(Context& ctx, PagePool& pool, CacheBatch& batch, StepRunner& runner,
             const EngineOptions& options) {
  const std::int64_t most = options.max_step_tokens;
  Steps steps{ctx, pool, batch, runner, options, {}};
  steps.ids.resize(static_cast<std::size_t>(most));
  // 1, 2, 4, 8, 16, 24, 32, 48, ...: the ends of all ranges that the library is asked about.
  for (std::int64_t power = 1; power <= most; power *= 2) {
    for (const std::int64_t tokens : {power, power / 2 * 3}) {
      if (tokens > most || (tokens != power && power < CacheBatch::kFewTokens)) continue;
      if (!steps.run(tokens, std::min(tokens, most_logits(options)), /*beside=*/false)) break;
      if (tokens > CacheBatch::kFewTokens && options.max_sequences > 1) {
        steps.run(tokens, 1, /*beside=*/true);
      }
    }
  }
  ctx.synchronize();
}

}  // namespace tessera::engine
