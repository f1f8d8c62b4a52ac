#include "perplexity_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string_view>

#include "core/fail.h"
#include "core/size_text.h"
#include "interrupt.h"
#include "parse_errors.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

// As the options are called; "sinks" is short for attention-sinks.
constexpr std::array<std::string_view, 11> kKeys = {"model",      "device",      "dtype", "weights",
                                                    "keep-dense", "activations", "sinks", "window",
                                                    "context",    "kv-dtype",    "stride"};

std::vector<std::string> split_at(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

// "--window=252" of "window=252".
std::string as_argument(const std::string& part, const std::string& whole) {
  const std::size_t equals = part.find('=');
  std::string key = part.substr(0, equals);
  if (key == "attention-sinks") key = "sinks";
  if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
    fail_usage("--compare {}: there is no setting '{}'; the settings are {}", whole, key,
               setting_keys());
  }
  if (equals == std::string::npos || equals + 1 == part.size()) {
    fail_usage("--compare {}: '{}' has no value; write {}=VALUE", whole, key, key);
  }
  return "--" + (key == "sinks" ? "attention-sinks" : key) + part.substr(equals);
}

// A setting's differences to the first; none for the first.
using Differences = std::vector<std::optional<PairedDifferences>>;

Differences differences_of(const std::vector<ScoredSetting>& scored) {
  Differences differences;
  for (const ScoredSetting& setting : scored) {
    const bool first = differences.empty();
    differences.push_back(
        first ? std::nullopt
              : std::optional(paired_differences(setting.result, scored.front().result)));
  }
  return differences;
}

void print_comparison(const CompareArgs& args, const std::vector<ScoredSetting>& scored,
                      const Differences& differences, std::size_t tokens) {
  std::size_t width = 7;
  for (const ScoredSetting& setting : scored) {
    width = std::max(width, setting.setting.label.size());
  }
  fmt::print("{}: {} tokens, {}\n", args.text.name, tokens,
             scored.front().setting.streams() ? "read as one stream" : "read in chunks");
  fmt::print("{:<{}}  {:>7} {:>7}  {:>8} {:>7}  {:>8} {:>7}  {:>9}\n", "setting", width, "nll",
             "+-", "ppl", "+-", "- first", "+-", "weights");
  for (std::size_t i = 0; i < scored.size(); ++i) {
    const PerplexityResult& result = scored[i].result;
    fmt::print("{:<{}}  {:>7.4f} {:>7.4f}  {:>8.3f} {:>7.3f}  ", scored[i].setting.label, width,
               result.nll, result.nll_error, result.ppl, result.ppl_error);
    if (differences[i]) {
      fmt::print("{:>+8.4f} {:>7.4f}", differences[i]->mean, differences[i]->error);
    } else {
      fmt::print("{:>8} {:>7}", "", "");
    }
    fmt::print("  {:>9}\n", size_text(scored[i].weight_bytes));
  }
}

nlohmann::json comparison_json(const CompareArgs& args, const std::vector<ScoredSetting>& scored,
                               const Differences& differences, std::size_t tokens) {
  nlohmann::json settings = nlohmann::json::array();
  for (std::size_t i = 0; i < scored.size(); ++i) {
    nlohmann::json object = to_json(scored[i]);
    object["setting"] = scored[i].setting.label;
    object["difference"] = differences[i]
                               ? nlohmann::json{{"against", scored.front().setting.label},
                                                {"nll", differences[i]->mean},
                                                {"nll_stderr", differences[i]->error},
                                                {"tokens", differences[i]->values.size()}}
                               : nlohmann::json();
    settings.push_back(std::move(object));
  }
  return {{"text", to_json(args.text, tokens)},
          {"reading", scored.front().setting.streams() ? "stream" : "chunks"},
          {"settings", std::move(settings)}};
}

// Opens a model where the last setting's does not serve.
class Sessions {
 public:
  const Session& open(const ModelOptions& options) {
    if (session_ && same_session(options_, options)) return *session_;
    session_.reset();  // before the next model takes memory
    session_ = open_session(options);
    options_ = options;
    return *session_;
  }

 private:
  std::optional<Session> session_;
  ModelOptions options_;
};

}  // namespace

std::string setting_keys() { return fmt::format("{}", fmt::join(kKeys, ", ")); }

PerplexitySetting parse_setting(const std::string& text, const PerplexitySetting& base) {
  PerplexitySetting setting = base;
  setting.label = text;
  std::vector<std::string> arguments;
  for (const std::string& part : split_at(text, ',')) arguments.push_back(as_argument(part, text));
  // The command's own options check the values.
  CLI::App flags;
  add_setting_options(flags, setting);
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    flags.parse(std::move(arguments));
    check_setting(setting);
  } catch (const CLI::ParseError& error) {
    fail_usage("--compare {}: {}", text, option_error(flags, error));
  } catch (const UsageError& error) {
    fail_usage("--compare {}: {}", text, error.what());
  }
  return setting;
}

void check_comparison(const std::vector<PerplexitySetting>& settings) {
  if (settings.size() < 2) {
    fail_usage("--compare {} is alone; give the flag once for each setting, two or more",
               settings.front().label);
  }
  for (const PerplexitySetting& setting : settings) {
    if (setting.streams() == settings.front().streams()) continue;
    const auto how = [](bool streams) { return streams ? "as one stream" : "in chunks"; };
    fail_usage(
        "--compare {} reads the text {}, --compare {} {}: such figures are not comparable; give a "
        "window to all settings or to none",
        settings.front().label, how(!setting.streams()), setting.label, how(setting.streams()));
  }
}

int compare(const CompareArgs& args) {
  Sessions sessions;
  std::vector<ScoredSetting> scored;
  std::vector<std::int32_t> ids;
  for (const PerplexitySetting& setting : args.settings) {
    const Session& session = sessions.open(setting.model);
    std::vector<std::int32_t> own = encode(session, args.text);
    if (!scored.empty() && own != ids) {
      fail_usage("--compare {}: its tokenizer makes other tokens of the text than that of {}",
                 setting.label, scored.front().setting.label);
    }
    ids = std::move(own);
    ScoredSetting outcome =
        score(session, setting, ids,
              fmt::format("scoring {} of {}", scored.size() + 1, args.settings.size()));
    if (outcome.result.cancelled) {
      fmt::print(stderr, "tessera: stopped at {}; the settings before it were finished\n",
                 setting.label);
      break;
    }
    fmt::print(stderr, "{}: {} tokens, {}, {:.1f} s; {}\n", setting.label, outcome.result.tokens,
               reading_text(outcome), outcome.seconds, outcome.summary);
    scored.push_back(std::move(outcome));
  }
  const bool complete = scored.size() == args.settings.size();
  if (scored.empty()) return kInterruptedStatus;
  const Differences differences = differences_of(scored);
  if (args.json) {
    fmt::print("{}\n", comparison_json(args, scored, differences, ids.size())
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print_comparison(args, scored, differences, ids.size());
  }
  std::fflush(stdout);
  write_positions(args.files, args.text, scored);
  return complete ? 0 : kInterruptedStatus;
}

}  // namespace tessera::app
