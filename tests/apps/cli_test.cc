// The program as a user runs it: output, exit status, errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/program.h"
#include "core/build_config.h"
#include "support/program.h"
#include "tessera/version.h"

namespace tessera::test {
namespace {

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

// A build with CUDA as well as one without.
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

// Past the length the model was trained for, a cache that keeps everything writes noise; attention
// sinks do not, and their memory stays what it was.
TEST(Cli, TheDemoStreamsPastTheTrainingLength) {
  const Outcome outcome = run("demo --tokens 1536 --json --threads 2");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_GT(json["story"].get<std::string>().size(), 100u);
  ASSERT_EQ(json["rows"].size(), 3u);
  const auto &first = json["rows"][0], &last = json["rows"][2];
  EXPECT_LT(last["attention sinks"]["perplexity"], 4.0);
  EXPECT_GT(last["keeps everything"]["perplexity"], 40.0);
  EXPECT_EQ(last["attention sinks"]["cache_bytes"], first["attention sinks"]["cache_bytes"]);
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
  for (const std::string command : {"", "chat", "demo", "devices", "generate", "info", "perplexity",
                                    "quantize", "tokenize", "verify"}) {
    const Outcome outcome = run(command + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.output.find("  tessera " + command), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("Example"), std::string::npos) << outcome.output;
  }
}

TEST(Cli, BadInputIsRefusedWithASentence) {
  const struct {
    const char *arguments, *expected;
  } cases[] = {
      {"", "A subcommand is required"},
      {"frobnicate", "there is no command 'frobnicate'; tessera --help lists them"},
      {"genrate", "there is no command 'genrate'; did you mean 'generate'?"},
      {"perplex", "did you mean 'perplexity'?"},
      {"demo --threads -1", "--threads"},
      {"demo --threads many", "--threads"},
      {"devices --jsno", "there is no option '--jsno'; did you mean '--json'?"},
      {"devices --zzzzzz", "there is no option '--zzzzzz'; tessera devices --help lists them"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run(c.arguments);
    EXPECT_EQ(outcome.status, 2) << c.arguments;
    EXPECT_NE(outcome.output.find(c.expected), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace tessera::test
