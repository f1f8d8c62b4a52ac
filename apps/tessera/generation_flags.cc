#include "generation_flags.h"

#include <CLI/CLI.hpp>

#include "option_checks.h"
#include "usage_error.h"

namespace tessera::app {

void add_generation_flags(CLI::App& command, GenerationFlags& flags) {
  command
      .add_option("--max-tokens", flags.max_tokens,
                  "End after N tokens; -1: only at an end token, a stop text or Ctrl-C")
      ->check(whole_number(-1))
      ->capture_default_str();
  command.add_flag("--ignore-eos", flags.ignore_eos, "Continue after an end token");
  command.add_option("--stop", flags.stop, "End before this text; repeatable")
      ->allow_extra_args(false)
      ->check(not_empty());
  command
      .add_option("--logprobs", flags.logprobs,
                  "Report each token's log probability and the N most likely tokens")
      ->check(whole_number(0, kMostLogprobs));
}

GenerateOptions GenerationFlags::parsed() const {
  if (max_tokens == 0) fail_usage("--max-tokens 0 writes nothing; -1 sets no limit");
  const SamplingOptions options = sampling.parsed();
  check_sampling(options);
  return {.max_tokens = max_tokens,
          .ignore_eos = ignore_eos,
          .stop = stop,
          .sampling = options,
          .top_logprobs = logprobs};
}

}  // namespace tessera::app
