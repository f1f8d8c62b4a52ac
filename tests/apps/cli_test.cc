// The program as a user runs it: output, exit status, errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "apps/program.h"
#include "core/build_config.h"
#include "support/program.h"
#include "tessera/version.h"

namespace tessera::test {
namespace {

std::string longest_line(const std::string& text) {
  std::istringstream in(text);
  std::string longest;
  for (std::string line; std::getline(in, line);) {
    if (line.size() > longest.size()) longest = line;
  }
  return longest;
}

TEST(Cli, SaysItsVersion) {
  const Outcome outcome = run("--version");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, std::string("tessera ") + version() + "\n");
}

TEST(Cli, ListsDevicesAsATableAndAsJson) {
  const std::string table = run("devices").output;
  for (const char* part : {"capability", "free", "driver", "\ncpu ", "\nCUDA: "}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << " in\n" << table;
  }
  const Outcome outcome = run("devices --json");
  EXPECT_EQ(outcome.status, 0);
  const auto json = nlohmann::json::parse(outcome.output);
  const auto& cpu = json["devices"][0];
  EXPECT_EQ(cpu["device"], "cpu");
  EXPECT_GT(cpu["memory_bytes"], 0);
  EXPECT_GT(cpu["memory_free_bytes"], 0);
  EXPECT_EQ(cpu["usable"], true);
  EXPECT_TRUE(cpu["why_unusable"].is_null());
  EXPECT_EQ(json["cuda"]["toolkit"].is_null(), !kHaveCuda);
  EXPECT_FALSE(json["cuda"]["status"].get<std::string>().empty());
}

// This holds for a build with CUDA and for one without.
TEST(Cli, WorksOnTheCpuWhereNoGpuCanBeUsed) {
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  const Outcome listed = run("devices --json");
  const ProgramRun chosen =
      run_program(TESSERA_PROGRAM, "generate --prompt x --max-tokens 1 --json");
  const Outcome refused = run("generate --prompt x --max-tokens 1 --device cuda");
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(listed.status, 0) << listed.output;
  EXPECT_EQ(nlohmann::json::parse(listed.output)["devices"].size(), 1u) << listed.output;
  ASSERT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_EQ(nlohmann::json::parse(chosen.out)["device"], "cpu");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("; use --device cpu"), std::string::npos) << refused.output;
}

// Past the length the model was trained for, a cache that keeps everything writes noise. Attention
// sinks do not, and their memory stays the same.
TEST(Cli, TheDemoStreamsPastTheTrainingLength) {
  const Outcome outcome = run("demo --tokens 1536 --json --threads 2");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_GT(json["story"].get<std::string>().size(), 100u);
  ASSERT_EQ(json["rows"].size(), 6u);
  const auto &first = json["rows"][0], &last = json["rows"][5];
  EXPECT_LT(last["attention sinks"]["perplexity"], 4.0);
  EXPECT_GT(last["keeps everything"]["perplexity"], 40.0);
  EXPECT_EQ(last["attention sinks"]["cache_bytes"], first["attention sinks"]["cache_bytes"]);
}

TEST(Cli, TheDemoSaysHowToGoOnWithin80Columns) {
  const Outcome outcome = run("demo --tokens 2 --threads 2");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("\nTo go on:\n  tessera generate "), std::string::npos);
  const std::string own = outcome.output.substr(outcome.output.find("Now an endless stream"));
  EXPECT_LE(longest_line(own.substr(0, own.find("\nAfter "))).size(), 80u) << own;
  EXPECT_LE(longest_line(own.substr(own.find("To go on:"))).size(), 80u) << own;
}

TEST(Cli, TheKernelsDemoAgreesWithFloat64) {
  const Outcome outcome = run("demo --kernels --json --threads 2");
  EXPECT_EQ(outcome.status, 0);
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["ok"], true);
  ASSERT_EQ(json["rows"].size(), 4u);
  for (const auto& row : json["rows"]) {
    EXPECT_GT(row["ms"], 0.0);
    EXPECT_LT(row["bytes"], row["plain_bytes"]);
  }
}

TEST(Cli, EverySubcommandHelpsWithAnExample) {
  for (const std::string command : {"", "batch", "chat", "demo", "devices", "generate", "info",
                                    "perplexity", "quantize", "tokenize", "verify"}) {
    const Outcome outcome = run(command + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.output.find("  tessera " + command), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("Example"), std::string::npos) << outcome.output;
  }
}

TEST(Cli, HelpFitsTheTerminalAndHasNoJargon) {
  for (const std::string command : {"", "batch", "chat", "demo", "devices", "generate", "info",
                                    "perplexity", "quantize", "tokenize", "verify"}) {
    for (const std::size_t width : {40u, 80u}) {
      setenv("COLUMNS", std::to_string(width).c_str(), 1);
      const std::string help = run(command + " --help").output;
      unsetenv("COLUMNS");
      EXPECT_LE(longest_line(help).size(), width) << longest_line(help);
      for (const char* jargon : {"INT", "in [", "TEXT:{", "REQUIRED"}) {
        EXPECT_EQ(help.find(jargon), std::string::npos) << jargon << " in\n" << help;
      }
    }
  }
}

TEST(Cli, HelpShowsChoicesDefaultsAndWhatIsRequired) {
  setenv("COLUMNS", "80", 1);
  const std::string generate = run("generate --help").output;
  const std::string quantize = run("quantize --help").output;
  unsetenv("COLUMNS");
  for (const char* part :
       {"Usage: tessera generate [PROMPT] [options]\n", "  PROMPT, --prompt TEXT   The text",
        "  --device auto|cpu|cuda  ", "\nSampling:\n", "\nCache:\n", "\nModel:\n", "(default: 0.8)",
        "--greedy \\\n    \"The capital of France is\"\n"}) {
    EXPECT_NE(generate.find(part), std::string::npos) << part << " in\n" << generate;
  }
  EXPECT_NE(quantize.find("(required)"), std::string::npos) << quantize;
}

TEST(Cli, OutputThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "/dev/full is not there";
  for (const std::string arguments :
       {"--help", "generate --help", "--version", "devices", "devices --json", "info"}) {
    const ProgramRun outcome = run_program(
        "/bin/sh", "-c \"'" + std::string(TESSERA_PROGRAM) + "' " + arguments + " >/dev/full\"");
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_NE(outcome.err.find("the output could not be written: No space left on device"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(Cli, BadInputIsRefusedWithASentence) {
  const struct {
    const char *arguments, *expected;
  } cases[] = {
      {"", "no command given; tessera --help lists all commands"},
      {"--jsno", "there is no option '--jsno'; tessera --help lists all options"},
      {"frobnicate", "there is no command 'frobnicate'; tessera --help lists all commands"},
      {"genrate", "there is no command 'genrate'; did you mean 'generate'?"},
      {"perplex", "did you mean 'perplexity'?"},
      {"demo --threads -1", "--threads -1: must be a whole number from 0 to 1024"},
      {"demo --threads many", "--threads many: must be a whole number from 0 to 1024"},
      {"demo --seed -1", "--seed -1: must be a whole number from 0"},
      {"demo --tokens 1", "--tokens 1: must be a whole number from 2"},
      {"tokenize --text a", "give either --model DIR or --tokenizer FILE"},
      {"tokenize --model x --decode a", "--decode: 'a' is not a token id"},
      {"devices --jsno", "there is no option '--jsno'; did you mean '--json'?"},
      {"devices --zzzzzz",
       "there is no option '--zzzzzz'; tessera devices --help lists all options"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run(c.arguments);
    EXPECT_EQ(outcome.status, 2) << c.arguments;
    EXPECT_NE(outcome.output.find(c.expected), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace tessera::test
