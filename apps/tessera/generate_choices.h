// tessera generate through the engine: several answers to one prompt, or guesses ahead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine_setup.h"
#include "model_options.h"
#include "tessera/generate.h"

namespace tessera::app {

struct ChoicesRun {
  std::vector<std::int32_t> prompt_ids;
  std::string echo;  // printed before each answer
  std::int64_t n = 1;
  std::int64_t context = 0;  // of a full cache
  CachePolicy policy;
  GenerateOptions generation;
  bool json = false;
};

// Prints the answers as they come, one after the other, and the summary. Returns the exit status.
int run_choices(Session& session, const ModelOptions& model, const EngineFlags& flags,
                const ChoicesRun& run);

}  // namespace tessera::app
