// The program as a user runs it: output, exit status, errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/program.h"
#include "core/build_config.h"
#include "support/files.h"
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

// The names that `tessera --help` lists, and "" for the program itself.
std::vector<std::string> commands() {
  const std::string help = run("--help").output;
  std::istringstream in(help.substr(help.find("Commands:\n")));
  std::vector<std::string> names{""};
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line) && !line.empty()) {
    if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(Cli, EverySubcommandHelpsWithAnExample) {
  ASSERT_EQ(commands().size(), 14u);
  for (const std::string& command : commands()) {
    const Outcome outcome = run(command + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.output.find("  tessera " + command), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("Example"), std::string::npos) << outcome.output;
  }
}

TEST(Cli, HelpFitsTheTerminalAndHasNoJargon) {
  for (const std::string& command : commands()) {
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

// All "--flag" of a text, each once.
std::set<std::string> flags_in(const std::string& text) {
  const std::regex flag("(^|[^-\\w])(--[a-z][-a-z]*)");
  std::set<std::string> flags;
  for (std::sregex_iterator at(text.begin(), text.end(), flag), end; at != end; ++at) {
    flags.insert((*at)[2].str());
  }
  return flags;
}

// The page used to lack a third of the flags.
TEST(Cli, TheQuickReferenceHasEveryFlagAndNoOther) {
  const std::string page = read_text(data_path("../../docs/QUICK_REFERENCE.md"));
  const std::size_t begin = page.find("\n## The command line\n");
  ASSERT_NE(begin, std::string::npos);
  const std::set<std::string> there =
      flags_in(page.substr(begin, page.find("\n## ", begin + 1) - begin));
  std::set<std::string> known;
  for (const std::string& command : commands()) {
    for (const std::string& flag : flags_in(run(command + " --help").output)) {
      EXPECT_TRUE(there.contains(flag)) << "tessera " << command << " has " << flag;
      known.insert(flag);
    }
  }
  for (const std::string& flag : there) EXPECT_TRUE(known.contains(flag)) << flag;
}

// `--model "$MODEL"` used to run the bundled model where the variable was not set. An empty number
// was 0, and one beyond 64 bits the largest.
TEST(Cli, EmptyValuesAndNumbersOutOfRangeAreRefused) {
  const struct {
    const char *arguments, *expected;
  } cases[] = {
      {"info ''", "DIR '': must not be empty"},
      {"info --model ''", "--model '': must not be empty"},
      {"generate x --model ''", "--model '': must not be empty"},
      {"generate x --parallel ''", "--parallel '': must not be empty"},
      {"generate x --prompt-file ''", "--prompt-file '': must not be empty"},
      {"generate x --temperature ''", "--temperature '': must be a number"},
      {"generate x --temperature 1e400", "--temperature 1e400: must be a number"},
      {"generate x --top-k ''", "--top-k '': must be a whole number from 0"},
      {"generate x --top-k 99999999999999999999", "must be a whole number from 0 to"},
      {"chat --min-p ''", "--min-p '': must be a number"},
      {"quantize --model m --format int4 --out o --group ''", "--group '': must be a whole number"},
      {"quantize --model m --format int4 --out o --group 0x10", "--group 0x10: must be a whole"},
      {"quantize --model m --format int4 --out o --calibration ''", "--calibration '': must not"},
      {"bench norm --compare ''", "--compare '': must not be empty"},
      {"bench norm --compare x --max-regression nan",
       "--max-regression nan: must be a number from 0 to 1000"},
      {"bench norm --model x", "--model x is for the suites decode and all"},
      {"bench norm --max-regression 5", "--max-regression requires --compare"},
      {"perplexity --text x --by-position ''", "--by-position '': must not be empty"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run(std::string(c.arguments) + " </dev/null");
    EXPECT_EQ(outcome.status, 2) << c.arguments;
    EXPECT_NE(outcome.output.find(c.expected), std::string::npos) << outcome.output;
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
