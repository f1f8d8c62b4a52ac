// From logits to the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/sample.h"

namespace tessera {

// Applied in this order: logit bias, penalties (repetition, presence, frequency), temperature,
// top-k, top-p, min-p, draw. Default values change nothing. Of equally likely tokens the lower id
// comes first.
struct SamplingOptions {
  bool greedy = false;       // the most likely token, after bias and penalties; as temperature 0
  double temperature = 1.0;  // divides the logits
  std::int64_t top_k = 0;    // keep the k most likely; 0: all
  double top_p = 1.0;        // keep the most likely whose probabilities sum up to p
  double min_p = 0.0;        // keep those at least min_p times as likely as the most likely
  double repetition_penalty = 1.0;  // divides positive, multiplies negative logits of seen tokens
  double presence_penalty = 0.0;    // subtracted once from generated tokens
  double frequency_penalty = 0.0;   // subtracted for each time a token was generated
  // Added to the logits of these ids; -inf forbids one. If an id is given twice, the last one
  // counts.
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;  // the same seed gives the same tokens, on any number of threads
};

// Throws if an option is out of its range, and names the range.
void check(const SamplingOptions& options, std::int64_t vocab);

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the model's own distribution (before any option)
};

struct Sampled {
  TokenLogprob token{};
  std::vector<TokenLogprob> top{};  // with top_logprobs: the most likely ones
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Tokens of the prompt count for the repetition penalty.
  void see_prompt(std::span<const std::int32_t> ids);
  // Draws from logits [vocab] and remembers the token. Refuses logits that are NaN or +inf, and
  // logits that leave no token possible. top_logprobs: how many of the most likely tokens to report
  // besides the drawn one; with -1 even the drawn token's logprob is left out (it is then 0), which
  // saves a pass over the vocabulary.
  Sampled sample(std::span<const float> logits, std::int64_t top_logprobs = 0);

  // The next draw as arguments of sample() in tessera/sample.h, which draws the same token on any
  // device. None if bias or penalties change the logits first. Give the drawn token to accept().
  std::optional<SampleArgs> next_draw() const;
  // Remembers a token as drawn.
  void accept(std::int32_t id);

 private:
  bool is_greedy() const { return options_.greedy || options_.temperature == 0; }
  bool has_penalties() const;
  std::span<const float> adjusted(std::span<const float> logits);
  float largest_of(std::span<const float> logits);
  void report(std::span<const float> logits, std::int64_t top_logprobs, Sampled& sampled);
  void see(std::int32_t id, bool generated);

  SamplingOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<std::int32_t> seen_;              // ids of prompt and generated tokens, each once
  std::vector<std::int32_t> is_seen_, counts_;  // by id, grown as needed; counts of generated ones
  std::vector<float> adjusted_;                 // scratch, kept from call to call
  struct Draw;
  std::unique_ptr<Draw> draw_;
};

}  // namespace tessera
