#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::reference {

struct TokenCount {
  bool in_prompt = false;
  std::int64_t generated = 0;
};

struct LogitPenalties {
  double repetition = 1, presence = 0, frequency = 0;
};

// The logits of a row with bias added, then with the penalties on tokens that have been seen.
std::vector<double> adjusted_logits(std::vector<double> logits,
                                    const std::vector<std::pair<std::int64_t, double>>& bias,
                                    const LogitPenalties& penalties,
                                    const std::vector<TokenCount>& counts);

}  // namespace tessera::reference
