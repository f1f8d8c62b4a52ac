#include "reference/logprobs.h"

#include <algorithm>
#include <cmath>

namespace tessera::reference {

std::vector<double> logprobs(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - largest);
  std::vector<double> result;
  for (const double logit : logits) result.push_back(logit - largest - std::log(total));
  return result;
}

}  // namespace tessera::reference
