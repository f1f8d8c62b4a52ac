// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

// Applied in this order: logit bias, penalties (repetition, presence, frequency), temperature,
// top-k, top-p, min-p, draw. A value that is the default changes nothing. Of equally likely tokens
// the lower id comes first.
struct SamplingOptions {
  bool greedy = false;       // the most likely token, after bias and penalties; as temperature 0
  double temperature = 1.0;  // divides the logits
  std::int64_t top_k = 0;    // keep the k most likely; 0: all
  double top_p = 1.0;        // keep the most likely whose probabilities sum up to p
  double min_p = 0.0;        // keep those at least min_p times as likely as the most likely
  double repetition_penalty = 1.0;  // divides positive, multiplies negative logits of seen tokens
  double presence_penalty = 0.0;    // subtracted once from generated tokens
  double frequency_penalty = 0.0;   // subtracted for each time a token was generated
  // Added to the logits of these ids; -inf forbids one. The last one counts where an id is given
  // twice.
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
  // Draws from logits [vocab] and remembers the token. Refuses logits that are NaN or +inf, and
  // those that leave no token possible. top_logprobs: how many of the most likely tokens to report
  // beside the drawn one; -1 leaves the drawn token's own logprob out as well (it is then 0), which
  // saves a pass over the vocabulary.
  Sampled sample(std::span<const float> logits, std::int64_t top_logprobs = 0);

  // How many of the most likely tokens decide the next draw, whatever the others are: 1 where it is
  // greedy, top_k where that is set. 0: all of them, as bias, penalties and top_p alone ask for.
  std::int64_t head_size() const;
  // As sample(), without logprobs, from the head alone: its logits, largest first, and their ids,
  // as top_k() gives them. The same token.
  std::int32_t sample_head(std::span<const float> logits, std::span<const std::int32_t> ids);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // exp((logit - largest) / temperature)
  };
  static bool comes_first(const Candidate& a, const Candidate& b);

  // The steps of sample(), in order (src/engine/sampler.cc).
  bool is_greedy() const { return options_.greedy || options_.temperature == 0; }
  bool has_penalties() const;
  std::span<const float> adjusted(std::span<const float> logits);
  float find_maxima(std::span<const float> logits);
  std::int32_t first_largest(std::span<const float> logits, float largest) const;
  double total_weight(std::span<const float> logits, float largest, double temperature);
  void collect(std::span<const float> logits, float threshold);
  void collect_top(std::span<const float> logits, std::int64_t count);
  double weigh(float largest);
  float logit_of(double weight, float largest) const;
  void cut_tail(double wanted, float largest);
  std::int32_t draw(std::span<const float> logits, float largest, double random);
  std::int32_t draw_from_candidates(double random);
  std::int32_t draw_from_all(std::span<const float> logits, float largest, double random);
  void report(std::span<const float> logits, std::int64_t top_logprobs, Sampled& sampled);
  void see(std::int32_t id, bool generated);

  SamplingOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<std::int32_t> seen_;              // ids of prompt and generated tokens, each once
  std::vector<std::int32_t> is_seen_, counts_;  // by id, grown as needed; counts of generated ones
  // Scratch, kept from call to call.
  std::vector<float> adjusted_, maxima_, ordered_maxima_, sums_;
  std::vector<Candidate> candidates_, ordered_;
};

}  // namespace tessera
