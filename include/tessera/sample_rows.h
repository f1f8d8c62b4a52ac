// Draws tokens from rows of logits, each draw with options of its own, in one call. Everything
// about the draws but their number is read from the device.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// The options of one draw, with the meanings and ranges that SampleArgs gives (sample.h).
struct DrawOptions {
  double temperature = 1.0;
  double top_p = 1.0;
  double min_p = 0.0;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0, draw = 0;  // the draw takes the seed's random number `draw`
};
// The size of a DrawOptions in the memory that a kernel reads, in numbers of 8 bytes.
inline constexpr std::int64_t kDrawOptionsWords = 6;
static_assert(sizeof(DrawOptions) == kDrawOptionsWords * sizeof(std::int64_t));

struct SampleRowsArgs {
  // What the caller promises about all options, so that a GPU runs fewer kernels.
  enum class Kind : std::uint8_t {
    any,
    whole,   // no draw has top_k or top_p
    greedy,  // every draw has temperature 0
  };

  Tensor logits{};   // [rows, n] f32; n at most 2^20
  Tensor rows{};     // [draws] i32: the row that each draw is from; draws may share one
  Tensor options{};  // [draws, kDrawOptionsWords] i64: a DrawOptions for each draw
  Tensor ids{};      // [draws] i32
  Kind kind = Kind::any;
};
// Writes the token of each draw, the same that sample() draws from its row with its options. It is
// -1 if the row holds NaN or +inf, or nothing but -inf; if there is no such row; and if an option
// is out of its range. None of this is an error, because contents are not checked.
void sample_rows(Context& ctx, const SampleRowsArgs& args);

}  // namespace tessera
