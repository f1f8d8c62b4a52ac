// Frequencies of the rotary embedding, scaled for contexts longer than that of pretraining.
//
//   linear   every frequency is divided by `factor`
//   llama3   depends on how many turns a frequency makes within the first context: from
//            `high_freq_factor` turns on it stays, up to `low_freq_factor` turns it is divided by
//            `factor`, and between the two it is a weighted mean of both
#include <cmath>
#include <numbers>
#include <vector>

#include "core/fail.h"
#include "tessera/model_config.h"
#include "tessera/rotary.h"

namespace tessera {
namespace {

double scaled(double frequency, const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::none:
      return frequency;
    case RopeScaling::linear:
      return frequency / rope.factor;
    case RopeScaling::llama3: {
      const double turns =
          static_cast<double>(rope.original_max_positions) * frequency / (2 * std::numbers::pi);
      if (turns > rope.high_freq_factor) return frequency;
      if (turns < rope.low_freq_factor) return frequency / rope.factor;
      const double keep =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      return (1 - keep) * frequency / rope.factor + keep * frequency;
    }
  }
  return frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope) {
  if (!(std::isfinite(rope.factor) && rope.factor > 0)) {
    fail(ErrorCode::invalid_argument, "rope_frequencies: factor is {}; it must be positive",
         rope.factor);
  }
  if (rope.scaling == RopeScaling::llama3 &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
        rope.original_max_positions > 0)) {
    fail(ErrorCode::invalid_argument,
         "rope_frequencies: llama3 needs 0 < low_freq_factor < high_freq_factor and "
         "original_max_positions > 0, got {}, {} and {}",
         rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions);
  }
  std::vector<float> frequencies = rope_inv_freq(rope.dims, rope.theta);
  for (float& frequency : frequencies) frequency = static_cast<float>(scaled(frequency, rope));
  return frequencies;
}

}  // namespace tessera
