#include "engine/generation.h"

#include <algorithm>

#include "core/fail.h"

namespace tessera {
namespace {

void check_generate_options(const GenerateOptions& options, const Tokenizer* tokenizer,
                            std::int64_t vocab) {
  if (options.max_tokens < -1 || options.max_tokens == 0) {
    fail(ErrorCode::invalid_argument, "max_tokens is {}; it must be positive, or -1 for no limit",
         options.max_tokens);
  }
  if (options.top_logprobs < -1 || options.top_logprobs > vocab) {
    fail(ErrorCode::invalid_argument,
         "top_logprobs is {}; it must be -1 (none) or from 0 to the vocabulary's {}",
         options.top_logprobs, vocab);
  }
  if (!options.stop.empty() && tokenizer == nullptr) {
    fail(ErrorCode::invalid_argument,
         "stop strings need a tokenizer, and this call has none: leave them out");
  }
  // A stop string with half a character would cut the text inside one. encode() says what is wrong.
  for (const std::string& stop : options.stop) tokenizer->encode(stop);
  check(options.sampling, vocab);
}

void check_prompt_ids(std::span<const std::int32_t> prompt, std::int64_t vocab) {
  if (prompt.empty()) {
    fail(ErrorCode::invalid_argument, "the prompt is empty; it needs at least one token");
  }
  const auto outside = [&](std::int32_t id) { return id < 0 || id >= vocab; };
  const auto bad = std::find_if(prompt.begin(), prompt.end(), outside);
  if (bad != prompt.end()) {
    fail(ErrorCode::invalid_argument,
         "token {} of the prompt is {}; the model's vocabulary has the tokens 0 to {}",
         bad - prompt.begin(), *bad, vocab - 1);
  }
}

}  // namespace

void check_generation(const GenerateOptions& options, const Tokenizer* tokenizer,
                      std::span<const std::int32_t> prompt, std::int64_t vocab) {
  check_generate_options(options, tokenizer, vocab);
  check_prompt_ids(prompt, vocab);
}

Generation::Generation(const ModelConfig& config, const Tokenizer* tokenizer,
                       const GenerateOptions& options, std::span<const std::int32_t> prompt)
    : config_(config),
      options_(options),
      sampler_(options.sampling),
      text_(tokenizer, prompt, options.stop) {
  sampler_.see_prompt(prompt);
  result_.prompt_tokens = static_cast<std::int64_t>(prompt.size());
}

bool Generation::is_cancelled() const {
  return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
}

bool Generation::is_end_token(std::int32_t id) const {
  const auto in = [&](const auto& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return in(options_.stop_ids) || (!options_.ignore_eos && in(config_.eos));
}

GeneratedToken Generation::take(const Sampled& sampled, bool has_room) {
  const std::int32_t id = sampled.token.id;
  result_.ids.push_back(id);
  if (options_.top_logprobs >= 0) result_.sampled.push_back(sampled);
  GeneratedToken token{.sampled = sampled};
  const bool ends = is_end_token(id);
  if (!ends) token.text = text_.push(id);
  const auto why = [&]() -> std::optional<StopReason> {
    if (ends) return StopReason::eos;
    if (text_.stopped()) return StopReason::stop_string;
    if (is_cancelled()) return StopReason::cancelled;
    if (static_cast<std::int64_t>(result_.ids.size()) == options_.max_tokens) {
      return StopReason::max_tokens;
    }
    if (!has_room) return StopReason::context_full;
    return std::nullopt;
  };
  reason_ = why();
  if (reason_) {
    result_.reason = *reason_;
    token.text += text_.finish();
  }
  result_.text += token.text;
  return token;
}

std::string Generation::end(StopReason reason) {
  reason_ = result_.reason = reason;
  // What the decoder holds back before the first token is text of the prompt.
  std::string rest = result_.ids.empty() ? std::string() : text_.finish();
  result_.text += rest;
  return rest;
}

}  // namespace tessera
