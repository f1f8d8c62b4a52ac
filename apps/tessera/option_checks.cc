#include "option_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace tessera::app {

namespace {

// The number that the whole text is. CLI11 itself takes an empty text for 0, and 1e400 for
// infinity.
template <typename Number>
std::optional<Number> whole_text_as(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(value) : std::nullopt;
}

std::string or_quotes(const std::string& text) { return text.empty() ? "''" : text; }

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const std::optional<std::int64_t> value = whole_text_as<std::int64_t>(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("{}: must be a whole number from {} to {}", or_quotes(text), least, most);
  };
  return {check, ""};
}

CLI::Validator number(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const std::optional<double> value = whole_text_as<double>(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("{}: must be a number from {} to {}", or_quotes(text), least, most);
  };
  return {check, ""};
}

CLI::Validator number() {
  const auto check = [](const std::string& text) -> std::string {
    return whole_text_as<double>(text) ? "" : or_quotes(text) + ": must be a number";
  };
  return {check, ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
  // Help shows the words that the description holds.
  const std::string description = fmt::format("{{{}}}", fmt::join(words, ","));
  const auto check = [words = std::move(words)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    return fmt::format("{}: must be {}", text, list_text(words));
  };
  return {check, description};
}

CLI::Validator not_empty() {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "'': must not be empty" : "";
  };
  return {check, ""};
}

void refuse_empty_values(CLI::App& app) {
  constexpr std::array<std::string_view, 2> kMayBeEmpty = {"TEXT", "IDS"};
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      const std::string_view word = std::string_view(type).substr(0, type.find(':'));
      const bool may_be_empty = word.empty() || std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(),
                                                          word) != kMayBeEmpty.end();
      if (option->get_items_expected_max() > 0 && !may_be_empty) option->check(not_empty());
    }
  }
}

std::string list_text(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace tessera::app
