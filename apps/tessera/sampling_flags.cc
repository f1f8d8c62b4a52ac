#include "sampling_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "ops/sampling_table.h"
#include "option_checks.h"
#include "tessera/error.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

constexpr std::int64_t kLargestWholeNumber = std::numeric_limits<std::int64_t>::max();

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

// "--top-p" of top_p
std::string flag_of(const SamplingOption& option) {
  std::string flag = "--" + std::string(option.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  SamplingOptions& o = flags.options;
  command.add_flag("--greedy", o.greedy, "Always the most likely token");
  for (const SamplingOption& option : sampling_table()) {
    const std::string flag = flag_of(option), help(option.help);
    CLI::Option* added = option.number
                             ? command.add_option(flag, o.*option.number, help)->check(number())
                             : command.add_option(flag, o.*option.count, help)
                                   ->check(whole_number(static_cast<std::int64_t>(option.lowest),
                                                        kLargestWholeNumber));
    added->capture_default_str();
  }
  command
      .add_option("--logit-bias", flags.logit_bias,
                  "ID=VALUE: added to a token's logit; -inf forbids it; repeatable")
      ->type_name("BIAS")
      ->allow_extra_args(false);
  command
      .add_option("--seed", o.seed, "The same seed gives the same text, on any number of threads")
      ->check(whole_number(0, kLargestWholeNumber))
      ->capture_default_str();
}

void check_sampling(const SamplingOptions& options) {
  for (const SamplingOption& option : sampling_table()) {
    const double value = option.value(options);
    if (option.accepts(value)) continue;
    fail_usage("{} {}: must be {}", flag_of(option), value, option.accepted);
  }
  try {
    check(options, std::numeric_limits<std::int32_t>::max());
  } catch (const Error& error) {
    fail_usage("--logit-bias: {}", error.what());
  }
}

SamplingOptions SamplingFlags::parsed() const {
  SamplingOptions result = options;
  for (const std::string& text : logit_bias) result.logit_bias.push_back(parse_bias(text));
  return result;
}

}  // namespace tessera::app
