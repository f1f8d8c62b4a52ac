// tessera info on tiny checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

Json info(const ModelFolder& folder) {
  const ProgramRun outcome = run_program(TESSERA_PROGRAM, "info --json" + folder.option());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(Info, SaysWhatADenseModelIs) {
  const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  const Json json = info(folder);
  EXPECT_EQ(json["architecture"], "gpt_neox");
  EXPECT_EQ(json["vocab"], 96);
  EXPECT_EQ(json["max_positions"], 256);
  EXPECT_EQ(json["tokenizer_tokens"], 96);
  EXPECT_EQ(json["parallel_residual"], false);
  EXPECT_EQ(json["formats"].size(), 1u);
  EXPECT_EQ(json["formats"]["f32"]["parameters"], json["parameters"]);
  EXPECT_EQ(json["weight_bytes"], 4 * json["parameters"].get<std::int64_t>());
  EXPECT_EQ(json["kv_bytes_per_token"]["f32"], 2 * 4 * json["layers"].get<std::int64_t>() *
                                                   json["kv_heads"].get<std::int64_t>() *
                                                   json["head_dim"].get<std::int64_t>());
  EXPECT_TRUE(json["chat_template"].is_null());
}

// The linear layers of the body: two layers, hidden 128, intermediate 256, 4 heads, 2 key heads.
constexpr std::int64_t kPackedParameters = 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128);

TEST(Info, CountsTheNumbersThatPackedWeightsStandFor) {
  for (const char* format : {"int4", "nvfp4"}) {
    const ModelFolder folder(std::string("llama-") + format, TinyVocabulary::bytes);
    const Json json = info(folder);
    const Json& packed = json["formats"][format];
    EXPECT_EQ(packed["tensors"], 14);
    EXPECT_EQ(packed["parameters"], kPackedParameters);
    EXPECT_GT(packed["bytes"], kPackedParameters / 2);  // codes and their scales
    EXPECT_LT(packed["bytes"], kPackedParameters * 6 / 10);
    EXPECT_EQ(json["parameters"],
              kPackedParameters + json["formats"]["f32"]["parameters"].get<std::int64_t>());
  }
}

TEST(Info, PrintsATable) {
  const ModelFolder folder("qwen2-window", TinyVocabulary::printable);
  const ProgramRun outcome = run_program(TESSERA_PROGRAM, "info '" + folder.path().string() + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"qwen2", "sliding window", "KV per token", "f32"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;
  }
}

TEST(Info, RefusesWhatIsNoModel) {
  const TemporaryFolder empty;
  const ProgramRun outcome = run_program(TESSERA_PROGRAM, "info '" + empty.path().string() + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("config.json"), std::string::npos) << outcome.err;
  EXPECT_EQ(run_program(TESSERA_PROGRAM, "info a --model b").err,
            "tessera info: give the folder once, as DIR or --model; see tessera info --help\n");
}

}  // namespace
}  // namespace tessera::test
