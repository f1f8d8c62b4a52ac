// tessera: the command line. Exit status: 0, 1 (an error), 2 (wrong usage), 130 (Ctrl-C).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "suggestion.h"
#include "tessera/version.h"
#include "usage_error.h"

namespace {

constexpr int kUsageStatus = 2;

// " did you mean 'x'?" or nothing
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string found = tessera::app::nearest(word, candidates);
  return found.empty() ? "" : fmt::format(" did you mean '{}'?", found);
}

int refuse_command(const std::string& word, const std::vector<std::string>& commands) {
  fmt::print(stderr, "tessera: there is no command '{}';{} tessera --help lists them\n", word,
             did_you_mean(word, commands));
  return kUsageStatus;
}

// What is left over after parsing: an option that is not there, or a text without quotes.
int refuse_leftover(const CLI::App& command, const std::vector<std::string>& leftover) {
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  const auto option = std::find_if(leftover.begin(), leftover.end(), is_option);
  if (option == leftover.end()) {
    fmt::print(stderr,
               "tessera {}: '{}' is one argument too many; a text with spaces goes into quotes\n",
               command.get_name(), leftover.front());
    return kUsageStatus;
  }
  std::vector<std::string> options;
  for (const CLI::Option* known : command.get_options()) {
    for (const std::string& name : known->get_lnames()) options.push_back("--" + name);
  }
  const std::string word = option->substr(0, option->find('='));
  fmt::print(stderr, "tessera {}: there is no option '{}';{} tessera {} --help lists them\n",
             command.get_name(), word, did_you_mean(word, options), command.get_name());
  return kUsageStatus;
}

int refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    fmt::print(stderr, "tessera: {}; tessera --help lists the commands\n", error.what());
    return kUsageStatus;
  }
  const std::vector<std::string> leftover = app.remaining(true);
  const bool is_leftover = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (is_leftover && !leftover.empty()) return refuse_leftover(*chosen.front(), leftover);
  const std::string name = chosen.front()->get_name();
  fmt::print(stderr, "tessera {}: {}; tessera {} --help says more\n", name, error.what(), name);
  return kUsageStatus;
}

int run_command(const std::string& name, const tessera::app::Command& command) {
  try {
    const int status = command();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      fmt::print(stderr, "tessera: cannot write to standard output: {}\n", std::strerror(errno));
      return 1;
    }
    return status;
  } catch (const tessera::app::UsageError& error) {
    fmt::print(stderr, "tessera {}: {}; tessera {} --help says more\n", name, error.what(), name);
    return kUsageStatus;
  }
}

int run(int argc, char** argv) {
  CLI::App app("Language models in 4 bits, over endless streams, on the hardware you have.");
  app.set_version_flag("--version", std::string("tessera ") + tessera::version());
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera generate \"Once upon a time\"         a story, from the small model that comes "
      "along\n"
      "  tessera generate --model DIR --weights int4 --greedy \"The capital of France is\"\n"
      "  tessera chat --model DIR                    turn by turn\n"
      "  tessera info DIR                            what a checkpoint is\n"
      "  tessera perplexity --model DIR text.txt     how well it predicts a text\n"
      "  tessera tokenize --model DIR --text 'Once upon a time'\n"
      "  tessera quantize --model IN --format nvfp4 --out OUT\n"
      "  tessera verify --model DIR                  is it computed right, on this machine?\n"
      "  tessera demo                                a story, then an endless stream\n"
      "  tessera devices --json                      what this machine and this build can run on");

  std::vector<std::pair<std::string, tessera::app::Command>> commands;
  commands.emplace_back("generate", tessera::app::add_generate(app));
  commands.emplace_back("chat", tessera::app::add_chat(app));
  commands.emplace_back("info", tessera::app::add_info(app));
  commands.emplace_back("perplexity", tessera::app::add_perplexity(app));
  commands.emplace_back("quantize", tessera::app::add_quantize(app));
  commands.emplace_back("tokenize", tessera::app::add_tokenize(app));
  commands.emplace_back("verify", tessera::app::add_verify(app));
  commands.emplace_back("devices", tessera::app::add_devices(app));
  commands.emplace_back("demo", tessera::app::add_demo(app));
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const auto& [name, command] : commands) names.push_back(name);
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    return refuse_command(argv[1], names);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    return is_help ? app.exit(error) : refuse_usage(app, error);
  }
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(name)) return run_command(name, command);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 1;
  }
}
