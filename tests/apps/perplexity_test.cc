// tessera perplexity on tiny random checkpoints: near the size of the vocabulary, whatever the
// text.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

struct PerplexityCommand : testing::Test {
  const ModelFolder folder{"neox-serial-untied", TinyVocabulary::printable};
  std::string text;

  PerplexityCommand() {
    for (int i = 0; i < 60; ++i) text += "Sentence number " + std::to_string(i) + ". ";
  }
  ProgramRun run(const std::string& arguments) const {
    return run_program(TESSERA_PROGRAM, "perplexity --threads 1" + folder.option() + arguments,
                       text);
  }
  Json json(const std::string& arguments) const {
    const ProgramRun outcome = run("--json - " + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(text.size()); }
};

TEST_F(PerplexityCommand, ReportsNllPplAndStandardErrors) {
  const Json result = json("--context 64");
  EXPECT_EQ(result["chunks"], (size() + 63) / 64);
  EXPECT_EQ(result["tokens"], size() - result["chunks"].get<std::int64_t>());
  EXPECT_NEAR(result["ppl"].get<double>(), std::exp(result["nll"].get<double>()), 1e-6);
  EXPECT_GT(result["nll_stderr"].get<double>(), 0.0);
  EXPECT_GT(result["ppl_stderr"].get<double>(), 0.0);
  EXPECT_EQ(result["weights"], "dense");
  EXPECT_EQ(result["activations"], "int8");
  EXPECT_EQ(result["complete"], true);
  const ProgramRun plain = run("--context 64 -");
  EXPECT_TRUE(plain.out.starts_with("nll ")) << plain.out;
  EXPECT_NE(plain.err.find("tokens scored in"), std::string::npos);
}

TEST_F(PerplexityCommand, OverlapAndStreamsScoreEveryTokenButTheFirst) {
  EXPECT_EQ(json("--context 64 --stride 32")["tokens"], size() - 1);
  EXPECT_EQ(json("--attention-sinks 4 --window 60")["tokens"], size() - 1);
  EXPECT_EQ(json("--window 64")["cache"], "window(64)");
}

TEST_F(PerplexityCommand, AStreamThatFitsIsAChunk) {
  const double chunk = json("--max-tokens 100")["nll"];
  EXPECT_NEAR(json("--max-tokens 100 --attention-sinks 4 --window 200")["nll"].get<double>(), chunk,
              1e-5);
}

TEST_F(PerplexityCommand, RefusesWhatItCannotScore) {
  const struct {
    std::string arguments, expected;
    int status = 1;
  } cases[] = {
      {"", "give the text as either FILE (- is standard input) or --text", 2},
      {"--text ''", "the text has 0 tokens; perplexity needs at least 2"},
      {"/nowhere/text", "cannot read /nowhere/text"},
      {"- --window 8 --stride 4", "--stride 4 is of chunks", 2},
      {"- --context 8 --stride 9", "the stride is 9; it must be from 1 to 8"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = run(c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace tessera::test
