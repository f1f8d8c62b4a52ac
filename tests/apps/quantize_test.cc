// tessera quantize, as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"
#include "support/files.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

class QuantizeCommand : public testing::Test {
 protected:
  std::string out(const std::string& name = "out") const {
    return (folder_.path() / name).string();
  }
  // Runs `tessera quantize` with the dense golden as the model.
  Outcome quantize(const std::string& arguments) const {
    return run("quantize --threads 2 --model " + golden_ + " " + arguments);
  }

  const std::string golden_ = data_path("goldens/neox-serial-untied").string();
  TemporaryFolder folder_;
};

TEST_F(QuantizeCommand, EveryFormatGivesAModelThatLoads) {
  Context ctx({.threads = 2});
  for (const char* format : {"nvfp4", "mxfp4", "nf4", "int4", "int8", "fp8"}) {
    const Outcome outcome =
        quantize(std::string("--json --format ") + format + " --out " + out(format));
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json["format"], format);
    EXPECT_EQ(json["packed_layers"], 9);
    EXPECT_LT(json["bytes_after"], json["bytes_before"]);
    EXPECT_GT(json["mean_relative_error"], 0.0);
    EXPECT_EQ(json["layers"].size(), 10u);
    const auto model = load_model(ctx, out(format));
    ASSERT_EQ(model->linear_layers().size(), 9u);
    for (const LayerInfo& layer : model->linear_layers()) {
      EXPECT_EQ(name(layer.weight.format), format) << layer.name;
    }
    EXPECT_TRUE(model->notes().empty());
  }
}

TEST_F(QuantizeCommand, EndsWithOneLineThatSaysWhatWasDone) {
  const Outcome outcome =
      quantize("--format int4 --zero-point --keep-dense '*.attention.dense' --out " + out());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output.find(out() + ": 7 of 10 layers packed as int4, 0."), 0u)
      << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1);
}

TEST_F(QuantizeCommand, AnAutomaticPlanPrintsItsTable) {
  const Outcome outcome = quantize(
      "--format nvfp4 --plan auto --budget 60% --calibration-tokens 32 --json --out " + out());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  const double share = json["bytes_after"].get<double>() / json["bytes_before"].get<double>();
  EXPECT_LE(share, 0.6);
  EXPECT_GT(share, 0.4);  // the budget is used
  EXPECT_EQ(json["plan"]["layers"].size(), 9u);
  EXPECT_EQ(json["plan"]["tokens"], 32);
  EXPECT_LT(json["plan"]["divergence"], json["plan"]["divergence_all_packed"]);

  const Outcome table = quantize(
      "--format nvfp4 --plan auto --budget 60% --calibration-tokens 32 --out " + out("again"));
  EXPECT_NE(table.output.find("KL per MB"), std::string::npos) << table.output;
  EXPECT_NE(table.output.find("32 tokens of its own text"), std::string::npos) << table.output;
  EXPECT_EQ(read_text(out() + "/model.safetensors"),
            read_text(out("again") + "/model.safetensors"));
}

// If a refusal names the smallest budget, that budget works.
TEST_F(QuantizeCommand, ABudgetThatIsTooSmallNamesTheSmallest) {
  const std::string arguments =
      "--format int4 --plan auto --calibration-tokens 8 --pack-embedding ";
  const Outcome refusal = quantize(arguments + "--budget 1% --out " + out());
  ASSERT_EQ(refusal.status, 2);
  const std::string before = "the smallest that can be met is ";
  const std::size_t at = refusal.output.find(before);
  ASSERT_NE(at, std::string::npos) << refusal.output;
  std::istringstream words(refusal.output.substr(at + before.size()));
  std::string share, either, size;  // "31.4% or 0.123MB, with ..."
  words >> share >> either >> size;
  size.pop_back();
  for (const std::string& budget : {share, size}) {
    const Outcome outcome = quantize(arguments + "--budget " + budget + " --out " + out(budget));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
}

TEST_F(QuantizeCommand, AnAutomaticPlanMeasuresThePackedEmbedding) {
  const Outcome outcome = quantize(
      "--format nvfp4 --plan auto --budget 60% --calibration-tokens 8 --pack-embedding --json "
      "--out " +
      out());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  ASSERT_EQ(json["plan"]["layers"].size(), 10u);
  EXPECT_EQ(json["plan"]["layers"][1]["name"], "gpt_neox.embed_in");
  EXPECT_GT(json["plan"]["layers"][1]["divergence"], 0.0);
}

TEST_F(QuantizeCommand, BadInputIsRefusedWithASentenceAndWritesNothing) {
  fs::create_directory(out("full"));
  write_text(out("full") + "/mine", "mine");
  const std::string packed = data_path("goldens/llama-mxfp4").string();
  const struct {
    std::string arguments, expected;
    int status = 2;
  } cases[] = {
      {"--model " + golden_ + " --format int5 --out " + out(),
       "--format int5: choose one of nvfp4, mxfp4, nf4, int4, int8, fp8"},
      {"--model " + golden_ + " --format dense --out " + out(),
       "--format dense: choose one of nvfp4"},
      {"--model " + golden_ + " --format nvfp4 --group 32 --out " + out(),
       "--group 32: nvfp4 takes 16"},
      {"--model " + golden_ + " --format int4 --group 8 --out " + out(),
       "--group 8: int4 takes 0 (the whole row) or a multiple of 16"},
      {"--model " + golden_ + " --format fp8 --zero-point --out " + out(),
       "--zero-point is for int4; leave it out with --format fp8"},
      {"--model " + golden_ + " --format fp8 --out " + out("full"), "exists and is not empty", 1},
      {"--model " + golden_ + " --format fp8 --out " + golden_, "written over itself", 1},
      {"--model " + packed + " --format fp8 --out " + out(), "is packed already", 1},
      {"--model " + out("no") + " --format fp8 --out " + out(), "no folder", 1},
      {"--model " + golden_ + " --format fp8 --keep-dense 'lm_heda' --out " + out(),
       "--keep-dense lm_heda matches no layer"},
      {"--model " + golden_ + " --format fp8 --plan auto --out " + out(), "go together"},
      {"--model " + golden_ + " --format fp8 --budget 50% --out " + out(), "go together"},
      {"--model " + golden_ + " --format fp8 --plan auto --budget much --out " + out(),
       "--budget much: a budget is a share of the dense size (60%) or a size (300MB, 1.5GiB)"},
      {"--model " + golden_ + " --format fp8 --plan auto --budget 60 --out " + out(),
       "--budget 60: a budget needs a unit: say 60% or 60MB"},
      {"--model " + golden_ + " --format fp8 --plan auto --budget 10% --out " + out(),
       "--budget 10% is too small: the smallest that can be met is "},
      {"--model " + golden_ + " --format fp8 --plan auto --budget 50% --calibration no --out " +
           out(),
       "there is no file no", 1},
      // Both were taken and not used.
      {"--model " + golden_ + " --format fp8 --calibration no --out " + out(),
       "--calibration requires --plan"},
      {"--model " + golden_ + " --format fp8 --calibration-tokens 8 --out " + out(),
       "--calibration-tokens requires --plan"},
      {"--format fp8 --out " + out(), "--model"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run("quantize " + c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments;
    EXPECT_NE(outcome.output.find(c.expected), std::string::npos) << c.arguments << "\n"
                                                                  << outcome.output;
    EXPECT_FALSE(fs::exists(out())) << c.arguments;
  }
  EXPECT_EQ(read_text(out("full") + "/mine"), "mine");
}

}  // namespace
}  // namespace tessera::test
