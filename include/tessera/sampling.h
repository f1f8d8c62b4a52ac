// From logits to the next token.
//
// Threads: one at a time for each Sampler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/sample.h"
#include "tessera/sample_rows.h"
#include "tessera/sampling_options.h"

namespace tessera {

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
  // besides the drawn one. With -1 even the drawn token's logprob is left out (it is then 0), which
  // saves a pass over the vocabulary.
  Sampled sample(std::span<const float> logits, std::int64_t top_logprobs = 0);

  // The next draw as arguments of sample() in tessera/sample.h, which draws the same token on any
  // device. Empty if bias or penalties change the logits first. Pass the drawn token to accept().
  std::optional<SampleArgs> next_draw() const;
  // The next draw's options for sample_rows(), even if bias or penalties change the logits first.
  DrawOptions next_options() const;
  // Remembers a token as drawn.
  void accept(std::int32_t id);
  // Allocates memory for every token of a vocabulary, so that accept() never allocates.
  void reserve(std::int64_t vocab);

  const SamplingOptions& options() const { return options_; }  // with at most one bias for each id
  bool has_penalties() const;
  std::uint64_t draws() const { return draws_; }  // so far
  // The tokens that penalties apply to, each once, and how often each of them was generated.
  std::span<const std::int32_t> seen() const { return seen_; }
  std::int32_t generated(std::int32_t id) const { return counts_[static_cast<std::size_t>(id)]; }

 private:
  bool is_greedy() const { return options_.greedy || options_.temperature == 0; }
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
