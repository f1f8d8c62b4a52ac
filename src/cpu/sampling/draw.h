// Draws one token from the logits of one row, on the CPU. The Sampler and sample() share this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/sample.h"

namespace tessera::cpu {

// Call find_maxima() first, then the others as often as needed. Scratch is kept from row to row.
class TokenDraw {
 public:
  struct Candidate {
    float logit;
    std::int32_t id;
    std::uint64_t weight;  // core/sample_weight.h
  };

  // Returns the largest logit, or NaN if the row holds one. The functions below need logits without
  // NaN and +inf, of which at least one is finite.
  float find_maxima(std::span<const float> logits);
  // Returns the first index of the largest logit.
  std::int32_t first_largest(std::span<const float> logits, float largest) const;
  // Draws a token by its random bits (draw_bits()) and the options of `args`. The temperature is
  // above 0.
  std::int32_t draw(std::span<const float> logits, float largest, const SampleArgs& args,
                    std::uint64_t bits);
  // The sum of all weights, in units of the largest logit's.
  double total(std::span<const float> logits, float largest, double temperature);
  // Returns the `count` most likely tokens, most likely first. Their weights are not set.
  std::span<const Candidate> most_likely(std::span<const float> logits, std::int64_t count);

 private:
  static bool comes_first(const Candidate& a, const Candidate& b);
  std::uint64_t weigh_all(std::span<const float> logits, float largest, double temperature);
  void collect(std::span<const float> logits, float threshold);
  void collect_top(std::span<const float> logits, std::int64_t count);
  std::uint64_t weigh(float largest, double temperature);
  void cut_tail(std::uint64_t wanted, float largest, double temperature);
  std::int32_t draw_from_all(std::span<const float> logits, float largest, double temperature,
                             std::uint64_t bits);
  std::int32_t draw_from_candidates(double min_p, std::uint64_t bits);

  std::vector<float> maxima_, ordered_maxima_;  // of blocks
  std::vector<std::uint64_t> weights_;          // of blocks
  std::vector<Candidate> candidates_, ordered_;
};

}  // namespace tessera::cpu
