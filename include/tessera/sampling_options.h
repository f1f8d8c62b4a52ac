// How the next token of a stream is chosen.
//
// Threads: a value, as safe as an int.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

// Applied in this order: logit bias, penalties (repetition, presence, frequency), temperature,
// top-k, top-p, min-p, draw. Default values change nothing. Of equally likely tokens the lower id
// comes first.
struct SamplingOptions {
  bool greedy = false;       // the most likely token, after bias and penalties; as temperature 0
  double temperature = 1.0;  // divides the logits
  std::int64_t top_k = 0;    // keep the k most likely; 0: all
  double top_p = 1.0;        // keep the most likely whose probabilities sum up to p
  double min_p = 0.0;        // keep those at least min_p times as likely as the most likely
  double repetition_penalty = 1.0;  // divides positive, multiplies negative logits of seen tokens
  double presence_penalty = 0.0;    // subtracted once from generated tokens
  double frequency_penalty = 0.0;   // subtracted for each time a token was generated
  // Added to the logits of these ids; -inf forbids one. If an id is given twice, the last one
  // counts.
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;  // the same seed gives the same tokens, on any number of threads
};

}  // namespace tessera
