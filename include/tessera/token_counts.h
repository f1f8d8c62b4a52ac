// Which tokens a stream has seen and how often it generated each, on the device. Penalties
// (adjust_logits.h) use these counts. Each stream has a slot, a row of counts.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// A count is how often the token was generated, with this bit set if the prompt has the token.
inline constexpr std::int32_t kInPrompt = INT32_MIN;

struct FillCountsArgs {
  Tensor counts{};        // [slots, n] i32
  std::int64_t slot = 0;  // whose counts are set; those of tokens not in `ids` become 0
  Tensor ids{};           // [m] i32: the tokens that have a count; none: the slot is cleared
  Tensor values{};        // [m] i32: their counts, each id once; none: kInPrompt for all
};
// Sets the counts of a slot. Ids outside [0, n) are ignored.
void fill_counts(Context& ctx, const FillCountsArgs& args);

struct CountTokensArgs {
  Tensor counts{};  // [slots, n] i32
  Tensor ids{};     // [draws] i32: tokens that were drawn
  Tensor slots{};   // [draws] i32: whose they are
};
// Adds 1 to the count of each token in its slot. Ids outside [0, n), such as the -1 of a row
// without a token, and slots that do not exist, such as -1, are ignored.
void count_tokens(Context& ctx, const CountTokensArgs& args);

}  // namespace tessera
