// How likely tokens were, by the logits that they were drawn from.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct LogprobsArgs {
  Tensor logits{};        // [rows, n] f32; n at most 2^20
  Tensor rows{};          // [draws] i32: the row of each draw; draws may share one
  Tensor ids{};           // [draws] i32: the token that was drawn
  Tensor logprobs{};      // [draws] f32: the logarithm of its probability, softmax(row)[id]
  Tensor top_ids{};       // [draws, k] i32: the k most likely tokens of the row; or none
  Tensor top_logprobs{};  // [draws, k] f32: of these, most likely first; or none
};
// Writes the logprobs of drawn tokens and of the most likely ones. Logarithms are natural. Of
// equally likely tokens the lower id comes first. If a row does not exist, holds NaN or +inf, or
// nothing but -inf, logprobs are NaN and top ids -1. The logprob of an id outside [0, n) is NaN.
void logprobs(Context& ctx, const LogprobsArgs& args);

}  // namespace tessera
