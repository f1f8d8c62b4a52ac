#include "reference/adjust_logits.h"

namespace tessera::reference {

std::vector<double> adjusted_logits(std::vector<double> logits,
                                    const std::vector<std::pair<std::int64_t, double>>& bias,
                                    const LogitPenalties& penalties,
                                    const std::vector<TokenCount>& counts) {
  for (const auto& [id, value] : bias) logits[static_cast<std::size_t>(id)] += value;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto& [in_prompt, generated] = counts[i];
    if (in_prompt || generated > 0) {
      logits[i] =
          logits[i] > 0 ? logits[i] / penalties.repetition : logits[i] * penalties.repetition;
    }
    if (generated > 0) {
      logits[i] -= penalties.presence + penalties.frequency * static_cast<double>(generated);
    }
  }
  return logits;
}

}  // namespace tessera::reference
