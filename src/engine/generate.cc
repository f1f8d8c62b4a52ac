// The loop around the model for one stream: reads the prompt in steps, then writes one token at a
// time.
//
//   ids --StepRunner--> id --Generation--> text --> caller
//    ^                   |
//    +-------------------+
#include "tessera/generate.h"

#include <chrono>

#include "engine/generation.h"
#include "engine/step_runner.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns false if it was cancelled on the way.
bool read_prompt(Context& ctx, KvCache& cache, StepRunner& runner, const Generation& generation,
                 std::span<const std::int32_t> prompt) {
  while (!prompt.empty()) {
    if (generation.is_cancelled()) return false;
    const std::size_t n = static_cast<std::size_t>(cache.step_size(std::ssize(prompt)));
    runner.forward(cache.step(ctx, prompt.first(n), n == prompt.size() ? 1 : 0));
    prompt = prompt.subspan(n);
  }
  return true;
}

bool has_room(const KvCache& cache) {
  const KvCacheOptions& options = cache.options();
  return options.policy.kind != CachePolicy::Kind::full || cache.seen() < options.max_tokens;
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::eos:
      return "eos";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::context_full:
      return "context_full";
    case StopReason::deadline:
      return "deadline";
  }
  return "unknown";
}

GenerateResult generate(Context& ctx, const Model& model, KvCache& cache,
                        const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        const std::function<void(const GeneratedToken&)>& on_token) {
  const Clock::time_point start = Clock::now();
  check_generation(options, tokenizer, prompt, model.config().vocab);
  Generation generation(model.config(), tokenizer, options, prompt);
  GenerateResult& result = generation.result();
  model.reserve_workspace(ctx, cache.options(), 1);
  StepRunner runner(ctx, model, 1);
  if (!read_prompt(ctx, cache, runner, generation, prompt)) {
    generation.end(StopReason::cancelled);
    return std::move(result);
  }
  ctx.synchronize();
  result.prefill_seconds = seconds_since(start);

  Clock::time_point first = start;
  std::vector<Sampled> drawn;
  while (true) {
    Draw draw{
        .sampler = &generation.sampler(), .top_logprobs = options.top_logprobs, .drawn = &drawn};
    runner.draw({&draw, 1});
    if (draw.error) std::rethrow_exception(draw.error);
    if (result.ids.empty()) {
      first = Clock::now();
      result.first_seconds = seconds_since(start);
    }
    const GeneratedToken token = generation.take(drawn.front(), has_room(cache));
    result.decode_seconds = seconds_since(first);
    if (on_token) on_token(token);
    if (generation.reason()) return std::move(result);
    runner.forward(cache.step(ctx, {&result.ids.back(), 1}, 1));
  }
}

}  // namespace tessera
