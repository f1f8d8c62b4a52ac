// tessera: the command line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "tessera/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Language models in 4 bits, over endless streams, on the hardware you have.");
  app.set_version_flag("--version", std::string("tessera ") + tessera::version());
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera demo               attention, a 4-bit layer and a block, checked and timed\n"
      "  tessera devices --json     what this machine and this build can run on\n"
      "  tessera tokenize --model DIR --text 'Once upon a time'");

  std::vector<std::pair<std::string_view, tessera::app::Command>> commands;
  commands.emplace_back("demo", tessera::app::add_demo(app));
  commands.emplace_back("devices", tessera::app::add_devices(app));
  commands.emplace_back("quantize", tessera::app::add_quantize(app));
  commands.emplace_back("tokenize", tessera::app::add_tokenize(app));
  commands.emplace_back("verify", tessera::app::add_verify(app));
  const auto is_first_word = [&](const auto& command) { return command.first == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' &&
      std::none_of(commands.begin(), commands.end(), is_first_word)) {
    fmt::print(stderr, "tessera: there is no command '{}'; tessera --help lists them\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(std::string(name))) return command();
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
