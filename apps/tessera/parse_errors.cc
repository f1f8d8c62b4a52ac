#include "parse_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "suggestion.h"

namespace tessera::app {
namespace {

// " did you mean 'x'?" or nothing
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? "" : fmt::format(" did you mean '{}'?", found);
}

// What is left over after parsing: an option that does not exist, or a text without quotes.
std::string leftover_error(const CLI::App& command, const std::string& program,
                           const std::vector<std::string>& leftover) {
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  const auto option = std::find_if(leftover.begin(), leftover.end(), is_option);
  if (option == leftover.end()) {
    return fmt::format("{}: '{}' is one argument too many; put quotes around a text with spaces",
                       program, leftover.front());
  }
  std::vector<std::string> options;
  for (const CLI::Option* known : command.get_options()) {
    for (const std::string& name : known->get_lnames()) options.push_back("--" + name);
  }
  const std::string word = option->substr(0, option->find('='));
  return fmt::format("{0}: there is no option '{1}';{2} {0} --help lists all options", program,
                     word, did_you_mean(word, options));
}

// From "Could not convert: --seed = x": "--seed x: must be a whole number"
std::string conversion_error(const CLI::App& command, const std::string& message) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name(), name = option->get_name();
    const bool numeric = type.starts_with("INT") || type.starts_with("UINT");
    if ((!numeric && !type.starts_with("FLOAT")) || option->count() == 0) continue;
    if (message.find(name + " = ") == std::string::npos) continue;
    return fmt::format("{} {}: must be a {}number{}", name, option->results().back(),
                       numeric ? "whole " : "", type.starts_with("UINT") ? ", 0 or more" : "");
  }
  return message;
}

// From "--threads: 5000: must be ...", as option_checks.h words it: "--threads 5000: must be ..."
std::string validation_error(std::string message) {
  const std::size_t colon = message.find(": ");
  const bool ours = colon != std::string::npos && message.find(": must ") != std::string::npos;
  if (ours) message.erase(colon, 1);
  return message;
}

// From "--model: 1 required TEXT missing" or "--seed: At Most 1 required but received 2"
std::string mismatch_error(const std::string& message) {
  const bool missing = message.ends_with(" missing");
  return message.substr(0, message.find(':')) +
         (missing ? " needs a value" : " is given more than once");
}

// From "--text excludes --decode"
std::string excludes_error(const std::string& message) {
  constexpr std::string_view kExcludes = " excludes ";
  const std::size_t at = message.find(kExcludes);
  if (at == std::string::npos) return message;
  return fmt::format("{} and {} cannot be used together", message.substr(0, at),
                     message.substr(at + kExcludes.size()));
}

template <typename Kind>
bool is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

}  // namespace

std::string option_error(const CLI::App& command, const CLI::ParseError& error) {
  std::string message = error.what();
  if (is<CLI::ConversionError>(error)) return conversion_error(command, message);
  if (is<CLI::ValidationError>(error)) return validation_error(message);
  if (is<CLI::ArgumentMismatch>(error)) return mismatch_error(message);
  if (is<CLI::ExcludesError>(error)) return excludes_error(message);
  return message;
}

std::string unknown_command(const std::string& word, const std::vector<std::string>& commands) {
  return fmt::format("tessera: there is no command '{}';{} tessera --help lists all commands", word,
                     did_you_mean(word, commands));
}

std::string parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string program = chosen.empty() ? "tessera" : "tessera " + command.get_name();
  const std::vector<std::string> leftover = app.remaining(true);
  if ((chosen.empty() || is<CLI::ExtrasError>(error)) && !leftover.empty()) {
    return leftover_error(command, program, leftover);
  }
  if (chosen.empty()) return "tessera: no command given; tessera --help lists all commands";
  return fmt::format("{0}: {1}; see {0} --help", program, option_error(command, error));
}

}  // namespace tessera::app
