#include "sampling_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "usage_error.h"

namespace tessera::app {
namespace {

std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::int32_t id = 0;
  if (equals != std::string::npos && equals + 1 < text.size()) {
    const char* begin = text.data();
    const auto [end, error] = std::from_chars(begin, begin + equals, id);
    char* value_end = nullptr;
    const float value = std::strtof(begin + equals + 1, &value_end);
    if (error == std::errc() && end == begin + equals && *value_end == '\0') return {id, value};
  }
  fail_usage("--logit-bias '{}' is not ID=VALUE, a token id and a number: --logit-bias 50256=-inf",
             text);
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  SamplingOptions& o = flags.options;
  command.add_flag("--greedy", o.greedy, "Always the most likely token");
  command.add_option("--temperature", o.temperature, "Divides the logits; 0 is greedy")
      ->capture_default_str();
  command.add_option("--top-k", o.top_k, "Keep the k most likely tokens; 0 keeps all")
      ->capture_default_str();
  command
      .add_option("--top-p", o.top_p, "Keep the most likely tokens whose probabilities sum up to p")
      ->capture_default_str();
  command
      .add_option("--min-p", o.min_p,
                  "Keep tokens at least this many times as likely as the most likely one")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", o.repetition_penalty,
                  "Makes tokens of prompt and text less likely where above 1")
      ->capture_default_str();
  command
      .add_option("--presence-penalty", o.presence_penalty,
                  "Subtracted from the logits of tokens that were generated")
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", o.frequency_penalty,
                  "Subtracted for each time a token was generated")
      ->capture_default_str();
  command
      .add_option("--logit-bias", flags.logit_bias,
                  "ID=VALUE: added to a token's logit; -inf forbids it; repeatable")
      ->allow_extra_args(false);
  command
      .add_option("--seed", o.seed, "The same seed gives the same text, on any number of threads")
      ->capture_default_str();
}

void check_sampling(const SamplingOptions& options) {
  check(options, std::numeric_limits<std::int32_t>::max());
}

SamplingOptions SamplingFlags::parsed() const {
  SamplingOptions result = options;
  for (const std::string& text : logit_bias) result.logit_bias.push_back(parse_bias(text));
  return result;
}

}  // namespace tessera::app
