// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

// Applied in this order: logit bias, penalties, temperature, top-k, top-p, min-p, draw. A value
// that is the default changes nothing.
struct SamplingOptions {
  bool greedy = false;  // the most likely token, after bias and penalties; as temperature 0
  double temperature = 1.0;
  std::int64_t top_k = 0;           // keep the k most likely; 0: all
  double top_p = 1.0;               // keep the most likely whose probabilities sum up to p
  double min_p = 0.0;               // keep those at least min_p times as likely as the most likely
  double repetition_penalty = 1.0;  // divides positive, multiplies negative logits of seen tokens
  double presence_penalty = 0.0;    // subtracted once from generated tokens
  double frequency_penalty = 0.0;   // subtracted for each time a token was generated
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;  // the same seed, the same tokens, on any number of threads
};

// Throws where an option is out of its range, with the range.
void check(const SamplingOptions& options, std::int64_t vocab);

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the model's own distribution (before any option)
};

struct Sampled {
  TokenLogprob token{};
  std::vector<TokenLogprob> top{};  // the most likely ones, where asked for
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  // Tokens of the prompt count for the repetition penalty.
  void see_prompt(std::span<const std::int32_t> ids);
  // Draws from logits [vocab] and remembers the token. Refuses logits that are NaN.
  Sampled sample(std::span<const float> logits, std::int64_t top_logprobs = 0);

 private:
  SamplingOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<std::int32_t> prompt_counts_, generated_counts_;  // by id, grown as needed
};

}  // namespace tessera
