// Draws one token for each row of logits, on the device that holds the logits: only the ids need to
// be copied from a GPU.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// Applied in this order: temperature, top-k, top-p, min-p, draw. Default values change nothing. Of
// equally likely tokens the lower id comes first.
struct SampleArgs {
  Tensor logits{};                   // [..., n] f32, f16 or bf16; n at most 2^20
  double temperature = 1.0;          // divides the logits; 0: the most likely token
  std::int64_t top_k = 0;            // keep the k most likely; 0: all
  double top_p = 1.0;                // keep the most likely whose probabilities sum up to p
  double min_p = 0.0;                // keep those at least min_p times as likely as the most likely
  std::uint64_t seed = 0, draw = 0;  // row r takes the seed's random number draw + r
  Tensor ids{};                      // [...] i32 or i64; [1] where logits is [n]
};
// Writes the id of one token for each row. A row that holds NaN or +inf, or nothing but -inf, gives
// -1.
//
// Weights are whole numbers, exp((logit - largest) / temperature) in units of 2^-43, so every sum
// is exact and the same seed gives the same tokens on every device. Tokens less than 2^-44 times as
// likely as the most likely one are never drawn.
void sample(Context& ctx, const SampleArgs& args);

}  // namespace tessera
