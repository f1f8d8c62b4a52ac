// What tessera generate refuses, and how it ends where it cannot write.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/files.h"
#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

TEST(GenerateRefusals, AFullDiskIsReported) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "/dev/full is not there";
  const ModelFolder tiny("neox-serial-untied", TinyVocabulary::printable);
  // The last one would write forever.
  for (const std::string options :
       {"--max-tokens 3 ", "--max-tokens 3 --json ", "--ignore-eos --window 64 --max-tokens -1 "}) {
    const ProgramRun run =
        run_program("/bin/sh", std::string("-c \"'") + TESSERA_PROGRAM + "' generate --greedy " +
                                   options + tiny.option() + "abc >/dev/full\"");
    EXPECT_EQ(run.status, 1) << options;
    EXPECT_NE(run.err.find("the output could not be written: No space left on device"),
              std::string::npos)
        << run.err;
  }
}

TEST(GenerateRefusals, BadInputGetsOneSentence) {
  const ModelFolder tiny("neox-serial-untied", TinyVocabulary::printable);
  const TemporaryFolder empty;
  const struct {
    std::string arguments;
    int status;
    std::string expected;
  } cases[] = {
      {"", 2, "there is no prompt: give exactly one of PROMPT, --prompt-ids and --prompt-file"},
      {"abc --prompt-ids 1", 2, "there is more than one prompt"},
      {"''", 1, "the prompt is empty"},
      {"--prompt-ids ''", 2, "--prompt-ids: '' is not a token id"},
      {"--prompt-ids 1,two", 2, "--prompt-ids: 'two' is not a token id"},
      {"--prompt-ids 1,96", 1, "token 1 of the prompt is 96; the model's vocabulary has"},
      {"--prompt-ids 1,-1", 1, "token 1 of the prompt is -1"},
      {"--prompt-file /nowhere/prompt.txt", 1, "/nowhere/prompt.txt"},
      {"--prompt-file " + empty.path().string(), 1, "is a folder"},
      {"$(printf 'a\\377b')", 1, "UTF-8"},
      {"$(head -c 300 /dev/zero | tr '\\0' a)", 1,
       "the prompt has 300 tokens and the cache holds at most 256, the length the model was "
       "trained "
       "for; shorten it, or use --attention-sinks 4 --window 252"},
      {"--context 2 abc", 1, "the prompt has 3 tokens and the cache holds at most 2"},
      {"--context 2147483584 --max-tokens -1 abc", 1, " the KV cache of 2147483584 tokens needs "},
      {"--context 2147483584 --max-tokens -1 abc", 1, ": the largest context that fits is "},
      {"abc --context 64 --window 8", 2, "--context 64 sizes a full cache"},
      {"abc --keep-dense x", 2, "--keep-dense x needs --weights"},
      {"abc --temperature -1", 2, "--temperature -1: must be 0 (greedy) or a positive number"},
      {"abc --top-p 2", 2, "--top-p 2: must be above 0 and at most 1"},
      {"abc --logit-bias 3=inf", 2, "--logit-bias: the logit bias of token 3 is inf"},
      {"abc --logit-bias 3", 2, "--logit-bias '3' is not ID=VALUE"},
      {"abc --logit-bias 96=1", 1, "logit_bias names token 96"},
      {"abc --stop ''", 2, "--stop '': must not be empty"},
      {"abc --logprobs 1001", 2, "--logprobs 1001: must be a whole number from 0 to 1000"},
      {"abc --max-tokens -2", 2, "--max-tokens -2: must be a whole number from -1"},
      {"abc --window 0", 2, "--window 0: must be a whole number from 1"},
      {"abc --attention-sinks 0", 2, "--attention-sinks 0: must be a whole number from 1"},
      {"abc --context 1", 2, "--context 1: must be a whole number from 2"},
      {"abc --temperature hot", 2, "--temperature hot: must be a number"},
      {"abc --top-k 1.5", 2, "--top-k 1.5: must be a whole number"},
      {"abc --device tpu", 2, "--device tpu: must be auto, cpu or cuda"},
      {"abc --dtype f64", 2, "--dtype f64: must be f32, f16 or bf16"},
      {"abc --activations int4", 2, "--activations int4: must be exact or int8"},
      {"abc --temperature -1", 2, "--temperature -1: must be "},
      {"abc --seed -1", 2, "--seed -1: must be a whole number from 0"},
      {"abc --seed", 2, "--seed needs a value"},
      {"abc --seed 1 --seed 2", 2, "--seed is given more than once"},
      {"abc --max-tokens 0", 2, "--max-tokens"},
      {"abc --threads many", 2, "--threads many: must be a whole number from 0 to 1024"},
      {"abc --weights int5", 2,
       "--weights int5: must be dense, nvfp4, mxfp4, nf4, int4, int8 or fp8"},
      {"abc --temprature 1", 2, "there is no option '--temprature'; did you mean '--temperature'?"},
      {"abc --attention-sink 4", 2, "did you mean '--attention-sinks'?"},
      {"once upon a time", 2,
       "'upon' is one argument too many; put quotes around a text with spaces"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome =
        run_program(TESSERA_PROGRAM, "generate --threads 1" + tiny.option() + c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << c.arguments << "\n"
                                                               << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

// It used to recommend --attention-sinks 0, which is refused.
TEST(GenerateRefusals, TheAdviceForAModelOfOneTokenCanBeFollowed) {
  const ModelFolder tiny("neox-serial-untied", TinyVocabulary::printable);
  nlohmann::json config = nlohmann::json::parse(read_text(tiny.path() / "config.json"));
  config["max_position_embeddings"] = 1;
  tiny.write("config.json", config.dump());
  const ProgramRun outcome = run_program(TESSERA_PROGRAM, "generate abc" + tiny.option());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("or use --window 1 for a stream of any length"), std::string::npos)
      << outcome.err;
}

TEST(GenerateRefusals, ModelsThatAreNotThereGetOneSentence) {
  const TemporaryFolder empty;
  const auto refused = [](const std::string& model) {
    const ProgramRun outcome = run_program(TESSERA_PROGRAM, "generate abc --model '" + model + "'");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(refused("/nowhere").find("/nowhere"), std::string::npos);
  EXPECT_NE(refused(empty.path().string()).find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace tessera::test
