// What generate and batch let a user say about an answer: where it ends, how its tokens are chosen,
// what is reported of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling_flags.h"
#include "tessera/generate.h"

namespace tessera::app {

struct GenerationFlags {
  SamplingFlags sampling;
  std::int64_t max_tokens = 256;
  std::int64_t logprobs = -1;
  bool ignore_eos = false;
  std::vector<std::string> stop;

  // Refuses what no model accepts, with the name of the flag.
  GenerateOptions parsed() const;
};

inline constexpr std::int64_t kMostLogprobs = 1000;

// --max-tokens, --ignore-eos, --stop, --logprobs
void add_generation_flags(CLI::App& command, GenerationFlags& flags);

}  // namespace tessera::app
