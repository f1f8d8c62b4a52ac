// The loop around the model: reads the prompt in steps, then writes one token at a time.
//
//   ids --forward--> logits --Sampler--> id --StreamDecoder--> text --StopText--> caller
//    ^                                   |
//    +-----------------------------------+
#include "tessera/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/fail.h"
#include "core/workspace.h"
#include "engine/forward_ids.h"
#include "engine/stop_text.h"
#include "tessera/sample.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_cancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

bool is_end(const ModelConfig& config, const GenerateOptions& options, std::int32_t id) {
  const auto in = [&](const auto& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return in(options.stop_ids) || (!options.ignore_eos && in(config.eos));
}

void check_options(const GenerateOptions& options, const Tokenizer* tokenizer, std::int64_t vocab) {
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

void check_prompt(std::span<const std::int32_t> prompt, std::int64_t vocab) {
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

// Runs tokens through the model. Its tensors are scratch memory of the Context, taken once.
class Runner {
 public:
  Runner(Context& ctx, const Model& model, KvCache& cache)
      : ctx_(ctx), model_(model), cache_(cache), frame_(reserved_workspace(ctx, model, cache, 1)) {
    logits_ = frame_.take(DType::f32, {1, model.config().vocab});
    drawn_ = frame_.take(DType::i32, {1});
    if (!ctx.device().is_cpu()) host_logits_.resize(static_cast<std::size_t>(logits_.numel()));
  }

  // Runs one step of the stream. `with_logits` asks for the logits of its last token.
  void forward(std::span<const std::int32_t> ids, bool with_logits) {
    forward_ids(ctx_, model_, cache_, ids, with_logits ? logits_ : Tensor{});
  }

  // Draws the next token from the logits of the last forward(). A GPU draws it where the logits
  // are. They are copied to the host only if bias, penalties or logprobs need all of them.
  Sampled sample(Sampler& sampler, std::int64_t top_logprobs) {
    std::optional<SampleArgs> draw = sampler.next_draw();
    if (ctx_.device().is_cpu() || top_logprobs >= 0 || !draw) {
      return sampler.sample(logits(), top_logprobs);
    }
    draw->logits = logits_;
    draw->ids = drawn_;
    tessera::sample(ctx_, *draw);
    Sampled sampled;
    std::int32_t& id = sampled.token.id;
    copy_bytes(ctx_, &id, Device::cpu(), drawn_.data, ctx_.device(), drawn_.bytes());
    // No token could be drawn. The Sampler finds the logit that is to blame and names it.
    if (id < 0) return sampler.sample(logits(), top_logprobs);
    sampler.accept(id);
    return sampled;
  }

  // Returns false if it was cancelled on the way.
  bool read_prompt(std::span<const std::int32_t> prompt, const GenerateOptions& options) {
    while (!prompt.empty()) {
      if (is_cancelled(options)) return false;
      const std::int64_t wanted = static_cast<std::int64_t>(prompt.size());
      const std::int64_t n = cache_.step_size(wanted);
      forward(prompt.first(static_cast<std::size_t>(n)), n == wanted);
      prompt = prompt.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }

  bool has_room() const {
    const KvCacheOptions& o = cache_.options();
    return o.policy.kind != CachePolicy::Kind::full || cache_.seen() < o.max_tokens;
  }

 private:
  // The logits of the last forward(), on the host.
  std::span<const float> logits() {
    const std::size_t vocab = static_cast<std::size_t>(logits_.numel());
    if (ctx_.device().is_cpu()) return {logits_.ptr<const float>(), vocab};
    copy_bytes(ctx_, host_logits_.data(), Device::cpu(), logits_.data, ctx_.device(),
               logits_.bytes());
    return host_logits_;
  }

  Context& ctx_;
  const Model& model_;
  KvCache& cache_;
  Workspace::Frame frame_;
  Tensor logits_;  // f32 [1, vocab]
  Tensor drawn_;   // i32 [1]
  std::vector<float> host_logits_;
};

// Turns tokens into text, up to a stop string.
class TextOut {
 public:
  // A decoder may drop a space at the beginning of a text, so it gets the end of the prompt first.
  static constexpr std::size_t kLeadTokens = 16;

  TextOut(const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
          const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {
    if (tokenizer == nullptr) return;
    decoder_.emplace(*tokenizer);
    for (const std::int32_t id : prompt.last(std::min(prompt.size(), kLeadTokens))) decode(id);
  }

  std::string push(std::int32_t id) { return stops_.push(decode(id)); }
  std::string finish() {
    if (!decoder_) return {};
    std::string text = stops_.push(decoder_->finish());
    return text + stops_.finish();
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  // Models pad their vocabulary. Ids without a token have no text.
  std::string decode(std::int32_t id) {
    if (!decoder_ || id >= tokenizer_->vocab_size() || tokenizer_->token(id).empty()) return {};
    return decoder_->push(id);
  }

  const Tokenizer* tokenizer_;
  std::optional<StreamDecoder> decoder_;
  StopText stops_;
};

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
  }
  return "unknown";
}

GenerateResult generate(Context& ctx, const Model& model, KvCache& cache,
                        const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        const std::function<void(const GeneratedToken&)>& on_token) {
  const Clock::time_point start = Clock::now();
  const ModelConfig& config = model.config();
  check_options(options, tokenizer, config.vocab);
  check_prompt(prompt, config.vocab);
  Sampler sampler(options.sampling);
  sampler.see_prompt(prompt);
  TextOut text(tokenizer, prompt, options.stop);
  Runner runner(ctx, model, cache);

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  result.reason = StopReason::cancelled;
  if (!runner.read_prompt(prompt, options)) return result;
  ctx.synchronize();
  result.prefill_seconds = seconds_since(start);

  // Returns why the text ends with the token that was just drawn, or nothing if it goes on.
  const auto reason_to_stop = [&](bool is_eos) -> std::optional<StopReason> {
    if (is_eos) return StopReason::eos;
    if (text.stopped()) return StopReason::stop_string;
    if (is_cancelled(options)) return StopReason::cancelled;
    if (static_cast<std::int64_t>(result.ids.size()) == options.max_tokens) {
      return StopReason::max_tokens;
    }
    if (!runner.has_room()) return StopReason::context_full;
    return std::nullopt;
  };
  Clock::time_point first = start;
  while (true) {
    GeneratedToken token;
    token.sampled = runner.sample(sampler, options.top_logprobs);
    const std::int32_t id = token.sampled.token.id;
    if (result.ids.empty()) {
      first = Clock::now();
      result.first_seconds = seconds_since(start);
    }
    result.ids.push_back(id);
    if (options.top_logprobs >= 0) result.sampled.push_back(token.sampled);
    const bool is_eos = is_end(config, options, id);
    if (!is_eos) token.text = text.push(id);
    const std::optional<StopReason> reason = reason_to_stop(is_eos);
    if (reason) token.text += text.finish();
    result.text += token.text;
    result.decode_seconds = seconds_since(first);
    if (on_token) on_token(token);
    if (reason) {
      result.reason = *reason;
      return result;
    }
    runner.forward({&id, 1}, true);
  }
}

}  // namespace tessera
