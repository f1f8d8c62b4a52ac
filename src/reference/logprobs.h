#pragma once

#include <vector>

namespace tessera::reference {

// The logarithm of softmax(logits). No logit may be NaN or +inf, and one must be finite.
std::vector<double> logprobs(const std::vector<double>& logits);

}  // namespace tessera::reference
