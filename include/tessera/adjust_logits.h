// Logit bias and penalties, which change logits before a token is drawn from them.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// The penalties of one draw, with the ranges that SamplingOptions gives (sampling_options.h).
struct Penalties {
  double repetition = 1.0;
  double presence = 0.0;
  double frequency = 0.0;
};
// The size of a Penalties in the memory that a kernel reads, in numbers of 8 bytes.
inline constexpr std::int64_t kPenaltiesWords = 3;
static_assert(sizeof(Penalties) == kPenaltiesWords * sizeof(std::int64_t));

struct AdjustLogitsArgs {
  Tensor logits{};  // [rows, n] f32
  Tensor rows{};    // [draws] i32: the row of each draw; draws may share one
  // Bias; give all three or none. Draw d adds bias[i] to the logit of the token bias_ids[i] for
  // i from bias_begin[d] to bias_begin[d + 1]. A draw names a token at most once.
  Tensor bias_begin{};  // [draws + 1] i32
  Tensor bias_ids{};    // [entries] i32
  Tensor bias{};        // [entries] f32
  // Penalties; give all three or none.
  Tensor penalties{};  // [draws, kPenaltiesWords] i64: a Penalties for each draw
  Tensor slots{};      // [draws] i32: whose counts the draw uses; -1: no penalty
  Tensor counts{};     // [slots, n] i32 (token_counts.h)
  Tensor out{};        // [draws, n] f32: the row of each draw, with its bias, then its penalties
};
// Copies the row of each draw to `out` and adjusts it there, to the same bits on every device.
// Contents are not checked: a row that does not exist becomes NaN, from which no token is drawn; a
// slot that does not exist has no penalty; a bias of a token outside [0, n) is ignored.
void adjust_logits(Context& ctx, const AdjustLogitsArgs& args);

}  // namespace tessera
