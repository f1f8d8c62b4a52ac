#include "option_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tessera::app {

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= least && value <= most) return {};
    return fmt::format("{}: must be a whole number from {} to {}", text, least, most);
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

std::string list_text(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace tessera::app
