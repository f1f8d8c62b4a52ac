// The sampling options of generate and chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/sampling.h"

namespace CLI {
class App;
}

namespace tessera::app {

struct SamplingFlags {
  // Unlike the library's defaults: values that give readable text with models of every size.
  SamplingOptions options{.temperature = 0.8, .top_p = 0.95};
  std::vector<std::string> logit_bias;  // "ID=VALUE"

  // The options with the biases in them. Refuses a bias that is not ID=VALUE.
  SamplingOptions parsed() const;
};

void add_sampling_flags(CLI::App& command, SamplingFlags& flags);
// Refuses what no vocabulary accepts, with the name of the flag: before a model is loaded.
void check_sampling(const SamplingOptions& options);

}  // namespace tessera::app
