// tessera profile as a user runs it: the JSON that is promised, and refusals.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "program.h"
#include "support/files.h"

namespace tessera::test {
namespace {

Outcome profile(const std::string& arguments) {
  return run("profile --device cpu --threads 2 " + arguments);
}

std::string tiny_model() { return "--model " + data_path("goldens/llama-gqa").string(); }

TEST(Profile, JsonAddsUp) {
  const Outcome outcome =
      profile(tiny_model() + " --prompt-len 24 --gen-len 6 --repeat 2 --json 2>/dev/null");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  for (const char* phase : {"prefill", "decode"}) {
    const auto& part = json.at(phase);
    const double wall = part.at("wall_ms");
    EXPECT_GT(wall, 0);
    double shares = 0, ms = 0;
    std::set<std::string> ops;
    for (const auto& row : part.at("rows")) {
      std::set<std::string> keys;
      for (const auto& [key, value] : row.items()) keys.insert(key);
      EXPECT_EQ(keys, (std::set<std::string>{"op", "kernel", "calls", "ms", "share", "bytes",
                                             "flops", "floor_ms", "max_gain", "advice"}));
      EXPECT_NEAR(row["share"].get<double>(), row["ms"].get<double>() / wall, 1e-9);
      shares += row["share"].get<double>();
      ms += row["ms"].get<double>();
      ops.insert(row["op"].get<std::string>());
      EXPECT_FALSE(row["advice"].get<std::string>().empty());
      EXPECT_EQ(row["advice"].get<std::string>().find("never called"), std::string::npos) << row;
    }
    EXPECT_NEAR(shares, 1, 0.01) << phase;
    EXPECT_NEAR(ms, wall, 0.01 * wall) << phase;
    const bool decodes = std::string_view(phase) == "decode";
    for (const char* op : {"linear", "gated_linear", decodes ? "append_attention" : "attention",
                           "rms_norm", "gaps"}) {
      EXPECT_TRUE(ops.contains(op)) << phase << " " << op;
    }
  }
  // Calls of decode are those of one token.
  for (const auto& row : json["decode"]["rows"]) {
    if (row["op"] == "append_attention") {
      EXPECT_EQ(row["calls"], 3);
    } else if (row["op"] == "embedding") {
      EXPECT_EQ(row["calls"], 1);
    }
  }
  EXPECT_GT(json["ceilings"]["memory_bandwidth"], 0);
  EXPECT_EQ(json["layers"]["decode"].size(), 3u + 1);
}

TEST(Profile, TextHasATableAndAdviceForEachPhase) {
  const Outcome outcome = profile(tiny_model() + " --prompt-len 8 --gen-len 3 --repeat 1");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* words :
       {"prefill:", "decode:", "a prompt of 8 tokens", "max gain", "if free", "gaps", "advise"}) {
    EXPECT_NE(outcome.output.find(words), std::string::npos) << words << "\n" << outcome.output;
  }
}

// It has a flag of its own: --fusion is the model's, as for every command.
TEST(Profile, ComparesAFusionsGainWithItsPrediction) {
  const Outcome outcome = profile(
      tiny_model() +
      " --dtype f32 --fusion off --fusion-gain --prompt-len 8 --gen-len 3 --repeat 2 --json "
      "2>/dev/null");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  for (const char* phase : {"prefill", "decode"}) {
    EXPECT_TRUE(json.at("fusion").at(phase).is_object()) << phase;
  }
}

TEST(Profile, WritesThePlotsOfThePage) {
  TemporaryFolder folder;
  const Outcome outcome = profile(tiny_model() + " --prompt-len 8 --gen-len 3 --repeat 1 --plots " +
                                  folder.path().string());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* name :
       {"prefill_roofline.svg", "prefill_shares.svg", "decode_roofline.svg", "decode_shares.svg"}) {
    EXPECT_GT(std::filesystem::file_size(folder.path() / name), 1000u) << name;
  }
}

// The prompt used to be made first, until no memory was left.
TEST(Profile, APromptThatNoMemoryHoldsIsRefusedAtOnce) {
  const Outcome outcome = profile(tiny_model() + " --prompt-len 1099511627776");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("pages of 64 tokens are too many"), std::string::npos)
      << outcome.output;
}

TEST(Profile, RefusesFilesThatCannotBeWrittenBeforeTheWork) {
  const Outcome ending = profile("--html page.txt");
  EXPECT_EQ(ending.status, 2);
  EXPECT_NE(ending.output.find("must end in .html"), std::string::npos) << ending.output;
  const Outcome folder = profile("--html missing-folder/page.html");
  EXPECT_EQ(folder.status, 2);
  EXPECT_NE(folder.output.find("there is no folder missing-folder"), std::string::npos);
  EXPECT_EQ(profile("--plots missing-folder").status, 2);
  EXPECT_EQ(profile("--prompt-len 0").status, 2);
  EXPECT_EQ(profile("--gen-len -1").status, 2);
}

}  // namespace
}  // namespace tessera::test
