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

int main(int argc, char** argv) {
  CLI::App app("Language models in 4 bits, over endless streams, on the hardware you have.");
  app.set_version_flag("--version", std::string("tessera ") + tessera::version());
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera demo               attention, a 4-bit layer and a block, checked and timed\n"
      "  tessera devices --json     what this machine and this build can run on");

  std::vector<std::pair<const char*, tessera::app::Command>> commands;
  commands.emplace_back("demo", tessera::app::add_demo(app));
  commands.emplace_back("devices", tessera::app::add_devices(app));
  const auto is_command = [&](const auto& c) {
    return argc > 1 && std::string_view(argv[1]) == c.first;
  };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_command)) {
    fmt::print(stderr, "tessera: there is no command '{}'; tessera --help lists them\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
    for (const auto& [name, run] : commands) {
      if (app.got_subcommand(name)) return run();
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tessera: {}\n", error.what());
    return 1;
  }
  return 0;
}
