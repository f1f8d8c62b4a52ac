// The answers to one request, put together from its events, and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tessera/engine.h"

namespace tessera::app {

class Answers {
 public:
  Answers(std::int64_t n, bool logprobs)
      : logprobs_(logprobs), open_(n), results_(static_cast<std::size_t>(n)) {}

  // Events may be of any choice. Returns true with the last one of the request.
  bool take(const Event& event);

  // Of each choice.
  const std::vector<GenerateResult>& results() const { return results_; }
  // The first error of a choice.
  const std::optional<Error>& error() const { return error_; }
  std::int64_t prompt_tokens() const { return results_[0].prompt_tokens; }
  std::int64_t generated_tokens() const;
  bool cancelled() const;
  bool has_logprobs() const { return logprobs_; }

 private:
  bool logprobs_;
  std::int64_t open_;  // choices that have not ended
  std::vector<GenerateResult> results_;
  std::optional<Error> error_;
};

// [{"id", "logprob", "token", "top": [...]}, ...], one for each token. The tokenizer may be null.
nlohmann::json logprobs_json(const GenerateResult& result, const Tokenizer* tokenizer);

}  // namespace tessera::app
