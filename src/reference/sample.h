#pragma once

#include <cstdint>
#include <vector>

namespace tessera::reference {

struct Filters {
  double temperature = 1.0;  // 0: only the most likely token
  std::int64_t top_k = 0;
  double top_p = 1.0, min_p = 0.0;
};

// The probability of each token, by sorting the whole vocabulary. No logit may be NaN or +inf.
std::vector<double> distribution(const std::vector<double>& logits, const Filters& filters);

// The first token at which the running sum of probabilities passes the draw's random number.
std::int32_t drawn_token(const std::vector<double>& probabilities, std::uint64_t seed,
                         std::uint64_t draw);

}  // namespace tessera::reference
