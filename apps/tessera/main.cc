// tessera: the command line. Exit status: 0, 1 (an error of files, models, devices or results), 2
// (a wrong command line), 130 (Ctrl-C).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "core/as_error.h"
#include "help_format.h"
#include "interrupt.h"
#include "option_checks.h"
#include "output.h"
#include "parse_errors.h"
#include "tessera/version.h"
#include "usage_error.h"

namespace {

constexpr int kUsageStatus = 2;

// For help and versions as well: what could not be written is an error.
int print(const std::string& text) {
  tessera::app::write_out(text);
  return 0;
}

int refuse(const std::string& sentence) {
  fmt::print(stderr, "{}\n", sentence);
  return kUsageStatus;
}

int run_command(const std::string& name, const tessera::app::Command& command) {
  try {
    const int status = command();
    tessera::app::flush_out();
    return status;
  } catch (const tessera::app::UsageError& error) {
    return refuse(fmt::format("tessera {0}: {1}; see tessera {0} --help", name, error.what()));
  }
}

int run(int argc, char** argv) {
  CLI::App app("Language models in 4 bits, over endless streams, on the hardware you have.");
  app.formatter(tessera::app::help_formatter());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", std::string("tessera ") + tessera::version(),
                       "Print the version and exit");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera generate \"Once upon a time\"        a story from the bundled model\n"
      "  tessera generate --model DIR --weights int4 --greedy \"The capital of France is\"\n"
      "  tessera chat --model DIR                   talk, turn by turn\n"
      "  tessera batch --input requests.jsonl --output results.jsonl\n"
      "  tessera serve                              an OpenAI endpoint and a page, on port 8080\n"
      "  tessera info DIR                           describe a checkpoint\n"
      "  tessera perplexity --model DIR text.txt    how well it predicts a text\n"
      "  tessera tokenize --model DIR --text 'Once upon a time'\n"
      "  tessera quantize --model IN --format nvfp4 --out OUT\n"
      "  tessera verify --model DIR                 check its results on this machine\n"
      "  tessera bench all --quick                  how fast this machine is\n"
      "  tessera profile --model DIR                where a token's time goes\n"
      "  tessera demo                               a story, then an endless stream\n"
      "  tessera devices --json                     what this machine can run on");

  std::vector<std::pair<std::string, tessera::app::Command>> commands;
  commands.emplace_back("generate", tessera::app::add_generate(app));
  commands.emplace_back("chat", tessera::app::add_chat(app));
  commands.emplace_back("batch", tessera::app::add_batch(app));
  commands.emplace_back("serve", tessera::app::add_serve(app));
  commands.emplace_back("info", tessera::app::add_info(app));
  commands.emplace_back("perplexity", tessera::app::add_perplexity(app));
  commands.emplace_back("quantize", tessera::app::add_quantize(app));
  commands.emplace_back("tokenize", tessera::app::add_tokenize(app));
  commands.emplace_back("verify", tessera::app::add_verify(app));
  commands.emplace_back("bench", tessera::app::add_bench(app));
  commands.emplace_back("profile", tessera::app::add_profile(app));
  commands.emplace_back("devices", tessera::app::add_devices(app));
  commands.emplace_back("demo", tessera::app::add_demo(app));
  tessera::app::refuse_empty_values(app);
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const auto& [name, command] : commands) names.push_back(name);
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    return refuse(tessera::app::unknown_command(argv[1], names));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return print(std::string(version.what()) + "\n");
  } catch (const CLI::CallForHelp&) {
    return print(app.help());
  } catch (const CLI::ParseError& error) {
    return refuse(tessera::app::parse_error(app, error));
  }
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(name)) return run_command(name, command);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tessera::app::ignore_file_size_signal();
    return tessera::as_error("this command", [&] { return run(argc, argv); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 1;
  }
}
