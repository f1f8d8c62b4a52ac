#include "engine/draw.h"

#include <algorithm>
#include <optional>

namespace tessera {

std::int64_t largest_logits_of(std::span<const Draw> draws) {
  constexpr std::int64_t kMost = 64;  // 512 bytes of each process: still a short message
  std::int64_t most = 0;
  for (const Draw& draw : draws) {
    // Bias and penalties may raise any token, and a log-probability is a sum over all.
    const std::optional<SampleArgs> args = draw.sampler->next_draw();
    if (!args || draw.top_logprobs >= 0) return 0;
    const std::int64_t needed = args->temperature == 0 ? 1 : args->top_k;
    if (needed == 0 || needed > kMost) return 0;
    most = std::max(most, needed);
  }
  return most;
}

}  // namespace tessera
