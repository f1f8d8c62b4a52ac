// One stream without a thread: a request to an EngineCore that runs in the pages of the caller's
// cache, and goes on with the sequence there.
#include "tessera/generate.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "engine/engine_core.h"

namespace tessera {
namespace {

using engine::Choice;
using engine::EngineCore;

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
  const engine::Clock::time_point start = engine::Clock::now();
  check_generation(options, tokenizer, prompt, model.config().vocab);
  CacheSequence& sequence = cache.sequence();
  sequence.step_size(std::ssize(prompt));  // refuses a prompt that does not fit
  const std::int64_t prompt_end = sequence.seen() + std::ssize(prompt);
  GenerateResult result;
  std::exception_ptr thrown;
  std::optional<Error> error;
  const auto on_event = [&](const Event& event) {
    add_event(event, options.top_logprobs >= 0, result, error);
    if (event.kind != Event::Kind::token || !on_token) return;
    try {
      on_token(event.token);
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  auto choice = std::make_unique<Choice>(model.config(), tokenizer, options, prompt);
  choice->submitted = start;
  choice->state = std::make_shared<RequestHandle::State>(1, 1, false, on_event);
  choice->policy = cache.options().policy;
  choice->before = sequence.seen();
  choice->sequence.lend(sequence);
  choice->usage.prompt_tokens = std::ssize(prompt);

  try {
    EngineCore core(ctx, model, cache);
    core.add(std::move(choice));
    while (!core.is_idle() && !thrown) core.step();
  } catch (...) {
    thrown = std::current_exception();
  }
  // However it ended, the cache holds the prompt and what was delivered, but for the last token. A
  // GPU may have been a step ahead.
  if (!result.ids.empty()) {
    sequence.truncate(std::min(sequence.seen(), prompt_end + std::ssize(result.ids) - 1));
  }
  if (thrown) std::rethrow_exception(thrown);
  if (error) throw Error(*error);
  return result;
}

}  // namespace tessera
