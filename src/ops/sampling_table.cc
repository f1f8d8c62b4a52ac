#include "ops/sampling_table.h"

#include <cmath>
#include <limits>

namespace tessera {
namespace {

// Far beyond what changes a text, and small enough that no f32 logit leaves its range.
constexpr double kMaxPenaltyFactor = 1000, kMaxPenalty = 1e6;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

constexpr SamplingOption kTable[] = {
    {.name = "temperature",
     .number = &SamplingOptions::temperature,
     .drawn_number = &SampleArgs::temperature,
     .lowest = 0,
     .highest = kNoLimit,
     .accepted = "0 (greedy) or a positive number",
     .help = "Divide the logits by this; 0 is greedy"},
    {.name = "top_k",
     .count = &SamplingOptions::top_k,
     .drawn_count = &SampleArgs::top_k,
     .lowest = 0,
     .highest = kNoLimit,
     .accepted = "0 (all tokens) or more",
     .help = "Keep the k most likely tokens; 0 keeps all"},
    {.name = "top_p",
     .number = &SamplingOptions::top_p,
     .drawn_number = &SampleArgs::top_p,
     .lowest = 0,
     .highest = 1,
     .above_lowest = true,
     .accepted = "above 0 and at most 1",
     .help = "Keep the most likely tokens whose probabilities add up to p"},
    {.name = "min_p",
     .number = &SamplingOptions::min_p,
     .drawn_number = &SampleArgs::min_p,
     .lowest = 0,
     .highest = 1,
     .accepted = "from 0 to 1",
     .help = "Keep tokens at least this many times as likely as the most likely one"},
    {.name = "repetition_penalty",
     .number = &SamplingOptions::repetition_penalty,
     .lowest = 1 / kMaxPenaltyFactor,
     .highest = kMaxPenaltyFactor,
     .accepted = "from 0.001 to 1000",
     .help = "Above 1: make tokens of the prompt and the text less likely"},
    {.name = "presence_penalty",
     .number = &SamplingOptions::presence_penalty,
     .lowest = -kMaxPenalty,
     .highest = kMaxPenalty,
     .accepted = "from -1000000 to 1000000",
     .help = "Subtract this from the logits of tokens generated before"},
    {.name = "frequency_penalty",
     .number = &SamplingOptions::frequency_penalty,
     .lowest = -kMaxPenalty,
     .highest = kMaxPenalty,
     .accepted = "from -1000000 to 1000000",
     .help = "Subtract this once for each time a token was generated"},
};

}  // namespace

std::span<const SamplingOption> sampling_table() { return kTable; }

bool SamplingOption::accepts(double value) const {
  return std::isfinite(value) && (above_lowest ? value > lowest : value >= lowest) &&
         value <= highest;
}

double SamplingOption::value(const SamplingOptions& options) const {
  return number ? options.*number : static_cast<double>(options.*count);
}

double SamplingOption::value(const SampleArgs& args) const {
  return drawn_number ? args.*drawn_number : static_cast<double>(args.*drawn_count);
}

void copy_draw_options(const SamplingOptions& from, SampleArgs& to) {
  for (const SamplingOption& option : kTable) {
    if (option.drawn_number) to.*option.drawn_number = from.*option.number;
    if (option.drawn_count) to.*option.drawn_count = from.*option.count;
  }
}

}  // namespace tessera
