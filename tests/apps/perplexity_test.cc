// tessera perplexity on tiny random checkpoints. For any text, the result is near the size of the
// vocabulary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/files.h"
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
  EXPECT_EQ(result["text"]["name"], "standard input");
  EXPECT_EQ(result["text"]["tokens"], size());
  EXPECT_EQ(result["reading"], "chunks");
  EXPECT_EQ(result["stride"], 64);
  EXPECT_EQ(result["window"], nullptr);
  const ProgramRun plain = run("--context 64 -");
  EXPECT_TRUE(plain.out.starts_with("nll ")) << plain.out;
  EXPECT_NE(plain.err.find("tokens scored, chunks of 64 tokens"), std::string::npos);
}

TEST_F(PerplexityCommand, OverlapAndStreamsScoreEveryTokenButTheFirst) {
  EXPECT_EQ(json("--context 64 --stride 32")["tokens"], size() - 1);
  EXPECT_EQ(json("--attention-sinks 4 --window 60")["tokens"], size() - 1);
  EXPECT_EQ(json("--window 64")["cache"], "window(64)");
}

// This used to be refused when a bos token took one place of the context.
TEST_F(PerplexityCommand, AStrideEqualToItsDefaultIsAccepted) {
  text.resize(200);  // some chunks
  const ModelFolder with_bos{"neox-serial-untied", TinyVocabulary::printable, /*add_bos=*/true};
  const auto nll = [&](const std::string& arguments) {
    const ProgramRun outcome = run_program(
        TESSERA_PROGRAM, "perplexity --threads 1 --json -" + with_bos.option() + arguments, text);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(outcome.out)["nll"].get<double>() : 0.0;
  };
  EXPECT_EQ(nll("--context 64 --stride 64"), nll("--context 64"));
}

TEST_F(PerplexityCommand, NotesACacheBeyondTheTrainedLength) {
  const std::string expected =
      "trained for 256: longer texts turn into nonsense; the largest sensible window is 252";
  const ProgramRun outcome = run("--json - --attention-sinks 4 --window 1020 --max-tokens 20");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json notes = Json::parse(outcome.out)["notes"];
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].get<std::string>().find(expected), std::string::npos) << notes;
  EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  EXPECT_EQ(json("--context 300 --max-tokens 20")["notes"].size(), 1u);
  EXPECT_EQ(json("--attention-sinks 4 --window 252 --max-tokens 20")["notes"], Json::array());
  EXPECT_EQ(json("--max-tokens 20")["notes"], Json::array());
}

TEST_F(PerplexityCommand, AStreamThatFitsIsAChunk) {
  const double chunk = json("--max-tokens 100")["nll"];
  EXPECT_NEAR(json("--max-tokens 100 --attention-sinks 4 --window 200")["nll"].get<double>(), chunk,
              1e-5);
}

// ---- --compare ----------------------------------------------------------------------------------

TEST_F(PerplexityCommand, ComparesSettingsTokenByToken) {
  const Json result =
      json("--context 64 --compare weights=dense --compare weights=int8 --compare weights=int4");
  ASSERT_EQ(result["settings"].size(), 3u);
  EXPECT_EQ(result["reading"], "chunks");
  EXPECT_EQ(result["text"]["name"], "standard input");
  const Json& first = result["settings"][0];
  EXPECT_EQ(first["setting"], "weights=dense");
  EXPECT_EQ(first["difference"], nullptr);
  EXPECT_EQ(first["nll"], json("--context 64")["nll"]);
  for (const int i : {1, 2}) {
    const Json& setting = result["settings"][i];
    const Json& difference = setting["difference"];
    EXPECT_EQ(difference["against"], "weights=dense");
    EXPECT_EQ(difference["tokens"], first["tokens"]);
    EXPECT_NEAR(difference["nll"].get<double>(),
                setting["nll"].get<double>() - first["nll"].get<double>(), 1e-6);
    // The difference is taken in pairs, so it is known far better than the means.
    EXPECT_GT(difference["nll_stderr"].get<double>(), 0.0);
    EXPECT_LT(difference["nll_stderr"].get<double>(), setting["nll_stderr"].get<double>());
    EXPECT_EQ(setting["context"], 64);
    EXPECT_LT(setting["weight_bytes"], first["weight_bytes"]);
  }
  EXPECT_EQ(result["settings"][2]["weights"], "int4");
}

TEST_F(PerplexityCommand, ComparesStreamsInOneTable) {
  text.resize(150);  // past the windows
  const ProgramRun outcome =
      run("- --weights int8 --compare sinks=4,window=60 --compare attention-sinks=1,window=60 "
          "--compare window=64,weights=nvfp4");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("standard input: " + std::to_string(size()) +
                                      " tokens, read as one stream\n"))
      << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 5);
  for (const char* label :
       {"\nsinks=4,window=60 ", "\nattention-sinks=1,window=60 ", "\nwindow=64,weights=nvfp4 "}) {
    EXPECT_NE(outcome.out.find(label), std::string::npos) << outcome.out;
  }
  EXPECT_NE(outcome.err.find("int8 weights"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("nvfp4 weights"), std::string::npos) << outcome.err;
}

TEST_F(PerplexityCommand, ComparesModelsOfTheSameTokenizer) {
  const ModelFolder other{"neox-serial-untied", TinyVocabulary::printable};
  const Json result = json("--context 64 --compare model='" + folder.path().string() +
                           "' --compare model='" + other.path().string() + "'");
  EXPECT_EQ(result["settings"][1]["difference"]["nll"], 0.0);
  EXPECT_EQ(result["settings"][1]["model"], other.path().string());
}

TEST_F(PerplexityCommand, RefusesSettingsThatDoNotCompare) {
  const struct {
    std::string arguments, expected;
  } cases[] = {
      {"--compare weights=dense",
       "--compare weights=dense is alone; give the flag once for each setting, two or more"},
      {"--compare weights=dense --compare colour=red",
       "--compare colour=red: there is no setting 'colour'; the settings are model, device, dtype, "
       "weights, keep-dense, activations, sinks, window, context, kv-dtype, stride"},
      {"--compare weights=dense --compare weights", "'weights' has no value; write weights=VALUE"},
      {"--compare weights=dense --compare weights=", "'weights' has no value"},
      {"--compare weights=dense --compare weights=int5", "--compare weights=int5: --weights"},
      {"--compare weights=dense --compare window=0", "--compare window=0: --window"},
      {"--compare weights=dense --compare weights=int4,window=60",
       "--compare weights=dense reads the text in chunks, --compare weights=int4,window=60 as one "
       "stream: such figures are not comparable; give a window to all settings or to none"},
      {"--compare weights=dense --compare weights=int4,weights=int8",
       "--compare weights=int4,weights=int8: --weights is given more than once"},
      {"--window 8 --compare context=64 --compare weights=int4",
       "--compare context=64: --context 64 sizes a full cache"},
      {"--window 8 --compare sinks=4 --compare stride=4", "--compare stride=4: --stride 4 is for"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = run("- " + c.arguments);
    EXPECT_EQ(outcome.status, 2) << c.arguments;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

// ---- --by-position ------------------------------------------------------------------------------

TEST_F(PerplexityCommand, WritesNllByPositionAsATableAndAsAPlot) {
  const TemporaryFolder files;
  const std::string csv = (files.path() / "nll.csv").string(),
                    svg = (files.path() / "nll.svg").string();
  const ProgramRun outcome =
      run("- --compare sinks=4,window=60 --compare window=64 --bucket 500 --by-position '" + csv +
          "' --by-position '" + svg + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream table(read_text(csv));
  std::string line;
  std::getline(table, line);
  EXPECT_EQ(line, "setting,begin,end,tokens,nll,nll_stderr,difference,difference_stderr");
  std::getline(table, line);
  EXPECT_TRUE(line.starts_with("\"sinks=4,window=60\",0,500,499,")) << line;
  EXPECT_TRUE(line.ends_with(",,")) << line;  // the first setting has no difference
  const auto buckets = (size() + 499) / 500;
  for (std::int64_t i = 0; i < buckets; ++i) std::getline(table, line);
  EXPECT_TRUE(line.starts_with("window=64,0,500,499,")) << line;
  EXPECT_FALSE(line.ends_with(",")) << line;
  const std::string plot = read_text(svg);
  EXPECT_TRUE(plot.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << plot;
  EXPECT_TRUE(plot.ends_with("</svg>\n"));
  for (const char* part : {">sinks=4,window=60<", ">window=64<", ">nll, nats per token<",
                           ">difference to the first, nats<", ">position in the text, tokens<"}) {
    EXPECT_NE(plot.find(part), std::string::npos) << part;
  }
}

TEST_F(PerplexityCommand, WritesNllByPositionOfOneSetting) {
  const TemporaryFolder files;
  const std::string csv = (files.path() / "nll.csv").string();
  ASSERT_EQ(run("- --context 64 --by-position '" + csv + "'").status, 0);
  const std::string table = read_text(csv);
  const auto lines = std::count(table.begin(), table.end(), '\n');
  EXPECT_GT(lines, 20);
  EXPECT_LT(lines, 42);  // about 40 points
}

// The table used to take the place of the text.
TEST_F(PerplexityCommand, TheTextIsNotWrittenOver) {
  const TemporaryFolder files;
  const std::string own = (files.path() / "text.csv").string();
  write_text(own, "Once upon a time");
  std::filesystem::create_symlink(own, files.path() / "link.csv");
  for (const char* name : {"text.csv", "./text.csv", "link.csv"}) {
    const ProgramRun outcome =
        run("'" + own + "' --by-position '" + (files.path() / name).string() + "'");
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("this is the text itself; give another name"), std::string::npos)
        << outcome.err;
  }
  EXPECT_EQ(read_text(own), "Once upon a time");
}

TEST_F(PerplexityCommand, RefusesWhatItCannotScore) {
  const struct {
    std::string arguments, expected;
    int status = 1;
  } cases[] = {
      {"", "give the text as either FILE (- is standard input) or --text", 2},
      {"--text ''", "the text has 0 tokens; perplexity needs at least 2"},
      {"/nowhere/text", "there is no file /nowhere/text"},
      {"- --window 8 --stride 4", "--stride 4 is for chunks", 2},
      {"- --context 8 --stride 9", "--stride 9 must be from 1 to 8, the tokens of a chunk", 2},
      {"- --by-position nll.txt", "--by-position nll.txt: the name must end in .csv", 2},
      {"- --by-position /nowhere/nll.csv", "there is no folder /nowhere", 2},
      {"- --bucket 8", "--bucket 8 needs --by-position FILE", 2},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = run(c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace tessera::test
