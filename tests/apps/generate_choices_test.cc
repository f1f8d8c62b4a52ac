// tessera generate through the engine: several answers, guesses ahead; the same tokens as plain.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "support/changed_checkpoint.h"
#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

const ModelFolder& choices_model() {
  static const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  return folder;
}

ProgramRun generate_with(const std::string& arguments) {
  return run_program(TESSERA_PROGRAM, "generate --threads 1 --ignore-eos --max-tokens 20" +
                                          choices_model().option() + arguments);
}

Json generated_json(const std::string& arguments) {
  const ProgramRun outcome = generate_with("--json " + arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(GenerateChoices, SeveralAnswersDrawWithTheSeedsThatFollow) {
  const Json json = generated_json("-n 3 --seed 4 --temperature 2 --logprobs 1 abc");
  ASSERT_EQ(json["choices"].size(), 3u);
  EXPECT_FALSE(json.contains("text"));
  EXPECT_EQ(json["prompt_ids"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const Json alone =
        generated_json("--temperature 2 --logprobs 1 --seed " + std::to_string(4 + i) + " abc");
    for (const char* key : {"token_ids", "text", "stop_reason"}) {
      EXPECT_EQ(json["choices"][i][key], alone[key]) << i << " " << key;
    }
    EXPECT_EQ(json["choices"][i]["logprobs"].size(), 20u);
  }
}

TEST(GenerateChoices, SeveralAnswersAreWrittenOneAfterTheOther) {
  const std::string arguments = "-n 2 --seed 4 --temperature 2 abc";
  const Json json = generated_json(arguments);
  const auto text = [&](int i) { return json["choices"][i]["text"].get<std::string>(); };
  const ProgramRun plain = generate_with(arguments);
  EXPECT_EQ(plain.out,
            "--- answer 1 of 2 ---\n" + text(0) + "\n--- answer 2 of 2 ---\n" + text(1) + "\n");
  EXPECT_NE(plain.err.find("3 tokens in, 40 out (2 answers): first "), std::string::npos)
      << plain.err;
}

TEST(GenerateChoices, GuessesAheadDoNotChangeTheText) {
  const std::string draft = "--draft '" + choices_model().path().string() + "' ";
  for (const std::string sampling : {"--greedy ", "--temperature 1.5 --seed 3 "}) {
    const Json plain = generated_json(sampling + "abcabcabc");
    for (const std::string& flags :
         {std::string("--speculate ngram "), draft,
          std::string("--speculate off --device cpu --batch-invariant ")}) {
      const Json json = generated_json(sampling + flags + "abcabcabc");
      EXPECT_EQ(json["token_ids"], plain["token_ids"]) << sampling << flags;
      EXPECT_EQ(json["text"], plain["text"]) << sampling << flags;
      EXPECT_EQ(json.contains("speculation"), flags.find("off") == std::string::npos);
      for (const char* key : {"ttft_ms", "tpot_ms", "tokens_per_s"}) {
        EXPECT_GT(json[key].get<double>(), 0.0) << key;
      }
    }
  }
}

TEST(GenerateChoices, SaysWhatCameOfGuesses) {
  const std::string draft = "--greedy --draft '" + choices_model().path().string() + "' abc";
  const Json speculation = generated_json(draft)["speculation"];
  EXPECT_EQ(speculation["kind"], "draft");
  // A draft that is the model itself is always right.
  EXPECT_GT(speculation["drafted_tokens"], 0);
  EXPECT_EQ(speculation["accept_rate"], 1.0);
  EXPECT_GT(speculation["tokens_per_pass"], 1.0);
  const ProgramRun plain = generate_with(draft);
  EXPECT_NE(plain.err.find("guesses were right (100%), "), std::string::npos) << plain.err;
  EXPECT_NE(plain.err.find(" tokens per pass of the model\nweights "), std::string::npos)
      << plain.err;
}

TEST(GenerateChoices, StreamsPastTheContextToo) {
  for (const std::string cache : {"--attention-sinks 4 --window 60 ", "--window 64 "}) {
    const std::string arguments = cache + "--greedy --max-tokens 100 abc";
    const ProgramRun plain =
        run_program(TESSERA_PROGRAM, "generate --threads 1 --ignore-eos --json" +
                                         choices_model().option() + arguments);
    const ProgramRun guessed =
        run_program(TESSERA_PROGRAM, "generate --threads 1 --ignore-eos --json --speculate ngram" +
                                         choices_model().option() + arguments);
    ASSERT_EQ(guessed.status, 0) << guessed.err;
    EXPECT_EQ(Json::parse(guessed.out)["token_ids"].size(), 100u);
    EXPECT_EQ(Json::parse(guessed.out)["cache"], Json::parse(plain.out)["cache"]);
  }
}

TEST(GenerateChoices, BadInputGetsOneSentence) {
  const ModelFolder other("neox-serial-untied", TinyVocabulary::printable);
  std::string tokenizer = read_text(other.path() / "tokenizer.json");
  const std::size_t letter = tokenizer.find("\"a\":");
  ASSERT_NE(letter, std::string::npos);
  tokenizer.replace(letter, 4, "\"aa\":");
  other.write("tokenizer.json", tokenizer);
  const TemporaryFolder larger;
  copy_checkpoint(data_path("goldens/neox-serial-untied"), larger.path());
  Json config = Json::parse(read_text(larger.path() / "config.json"));
  config["vocab_size"] = 97;
  write_text(larger.path() / "config.json", config.dump());
  const struct {
    std::string arguments;
    int status;
    std::string expected;
  } cases[] = {
      {"-n 0 abc", 2, "--answers 0: must be a whole number from 1 to 256"},
      {"--speculate maybe abc", 2, "--speculate maybe: must be ngram or off"},
      {"--speculate ngram --draft x abc", 2, "leave out --speculate ngram"},
      {"--draft /nowhere abc", 1, "/nowhere"},
      {"--draft '" + larger.path().string() + "' abc", 1,
       "has a vocabulary of 97 tokens and the model one of 96; give a smaller model with the same"},
      {"--draft '" + other.path().string() + "' abc", 1,
       "another vocabulary than the model: token"},
      {"-n 2 --max-tokens 0 abc", 2, "--max-tokens"},
      {"-n 2 $(head -c 300 /dev/zero | tr '\\0' a)", 1, "the prompt has 300 tokens"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = run_program(
        TESSERA_PROGRAM, "generate --threads 1" + choices_model().option() + c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << c.arguments << "\n"
                                                               << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace tessera::test
