// Prompt in, tokens out: the prompt is read in steps, then tokens come one at a time.
//
// Threads: one call at a time for a Context and its KvCache. The Model and the Tokenizer may serve
// others meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/sampling.h"
#include "tessera/tokenizer.h"

namespace tessera {

struct GenerateOptions {
  std::int64_t max_tokens = 128;  // -1: no limit; something else has to end the text
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_ids{};  // end the text as the model's own end tokens do
  std::vector<std::string> stop{};  // the text ends before the first of these; needs a tokenizer
  SamplingOptions sampling{};
  std::int64_t top_logprobs = -1;  // -1: none; n: those of the token and of the n most likely
  // Set from a signal handler or another thread: generation ends after the current token.
  const std::atomic<bool>* cancel = nullptr;
};

enum class StopReason : std::uint8_t {
  max_tokens,
  eos,
  stop_string,
  cancelled,
  context_full,  // a cache that keeps every token has no room for another one
  deadline,      // of a Request (tessera/engine.h)
};

std::string_view name(StopReason reason);

// One generated token, given to the caller as soon as it is drawn.
struct GeneratedToken {
  Sampled sampled{};
  // The text that became certain with this token: whole UTF-8 characters, never part of a stop
  // string. Empty without a tokenizer.
  std::string text{};
};

struct GenerateResult {
  std::vector<std::int32_t> ids{};  // including an end token
  std::vector<Sampled> sampled{};   // with top_logprobs: those of each token
  std::string text{};
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_tokens = 0;
  double prefill_seconds = 0;  // of the prompt, with the draw of the first token
  double first_seconds = 0;    // from the call to the first token
  double decode_seconds = 0;   // from the first token to the last
};

// Reads the prompt and generates tokens after it. If the cache already holds a stream, the prompt
// continues it. The last drawn token has not been through the model, so a prompt that continues
// from there must begin with it.
//
// The tokenizer may be null if only ids are wanted. Refused before any work: an empty prompt, ids
// that are not in the vocabulary, a prompt that does not fit into a full cache, options out of
// range. If the call is cancelled while the prompt is being read, the result has no tokens.
//
// on_token is called on the calling thread, once for each token, in order. An exception that it
// throws ends the call and reaches the caller unchanged. The cache then holds the prompt and every
// token before the one that was being delivered, as after any other end: a later call continues
// with a prompt that begins with that token.
GenerateResult generate(Context& ctx, const Model& model, KvCache& cache,
                        const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        const std::function<void(const GeneratedToken&)>& on_token = {});

}  // namespace tessera
