// tessera chat, from a pipe, on tiny random checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

ProgramRun chat(const ModelFolder& folder, const std::string& arguments, const std::string& input) {
  return run_program(TESSERA_PROGRAM,
                     "chat --threads 1 --greedy --ignore-eos" + folder.option() + arguments, input);
}

// The text that generate writes from a prompt.
std::string generated(const ModelFolder& folder, const std::string& prompt, int tokens,
                      const std::string& flags = "") {
  const ProgramRun outcome =
      run_program(TESSERA_PROGRAM,
                  "generate --threads 1 --greedy --ignore-eos --prompt-file - "
                  "--json --max-tokens " +
                      std::to_string(tokens) + flags + folder.option(),
                  prompt);
  return nlohmann::json::parse(outcome.out)["text"];
}

std::string with_template(const std::string& text) {
  return nlohmann::json{{"chat_template", text}}.dump();
}

struct Chat : testing::Test {
  const ModelFolder folder{"llama-int4", TinyVocabulary::bytes};
};

TEST_F(Chat, WithoutATemplateItSaysSoAndGoesOnFromTheText) {
  const ProgramRun outcome = chat(folder, "--max-tokens 6", "hello\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, generated(folder, "hello", 6) + "\n");
  EXPECT_NE(outcome.err.find("this model has no chat template"), std::string::npos);
  EXPECT_NE(outcome.err.find("6 tokens after a prompt of 5"), std::string::npos) << outcome.err;
}

TEST(PlainChat, LaterTurnsSeeTheEarlierOnes) {
  // All tokens but the first are printable letters: the text says what was fed. This vocabulary has
  // no newline, so that nothing stands between two turns.
  const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  const std::string flags = " --logit-bias 0=-inf ";
  const std::string first = generated(folder, "hello", 6, flags);
  const std::string second = generated(folder, "hello" + first + "and you?", 6, flags);
  EXPECT_EQ(chat(folder, "--max-tokens 6" + flags, "hello\nand you?\n").out,
            first + "\n" + second + "\n");
}

TEST_F(Chat, ResetForgetsAndExitEnds) {
  const ProgramRun outcome =
      chat(folder, "--max-tokens 6", "hello\n/reset\nhello\n/exit\nnot read\n");
  const std::string answer = generated(folder, "hello", 6) + "\n";
  EXPECT_EQ(outcome.out, answer + answer);
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(Chat, TemplatesAreKnownByTheirMarkers) {
  const struct {
    const char *markers, *prompt;
  } cases[] = {
      {"{{'<|im_start|>'}}",
       "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
       "<|im_start|>assistant\n"},
      {"<|start_header_id|>",
       "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user"
       "<|end_header_id|>\n\nhello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"[INST] <<SYS>>", "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nhello [/INST]"},
      {"[INST]", "[INST] Be kind.\n\nhello [/INST]"},
      {"<|assistant|> eos_token", "<|system|>\nBe kind.</s>\n<|user|>\nhello</s>\n<|assistant|>\n"},
  };
  for (const auto& c : cases) {
    folder.write("tokenizer_config.json", with_template(c.markers));
    const ProgramRun outcome = chat(folder, "--max-tokens 4 --system 'Be kind.'", "hello\n");
    // A newline at the end of a prompt file is left out: one more, then.
    EXPECT_EQ(outcome.out, generated(folder, std::string(c.prompt) + "\n", 4) + "\n") << c.markers;
    EXPECT_EQ(outcome.err.find("no chat template"), std::string::npos);
  }
  folder.write("chat_template.jinja", "<|im_start|>");  // goes before tokenizer_config.json
  EXPECT_EQ(
      chat(folder, "--max-tokens 4", "hello\n").out,
      generated(folder, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n\n", 4) + "\n");
}

TEST_F(Chat, ATemplateThatIsNotKnownIsRefused) {
  folder.write("tokenizer_config.json", with_template("{{ messages }} <turn>"));
  const ProgramRun unknown = chat(folder, "", "hello\n");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.err.find("choose one with --template"), std::string::npos) << unknown.err;
  const ProgramRun wrong = chat(folder, "--template chatmll", "hello\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("there is no chat template 'chatmll'; there are chatml, llama3"),
            std::string::npos);
}

TEST_F(Chat, SaysWhenTheContextIsFullAndGoesOnAfterAReset) {
  const ProgramRun outcome =
      chat(folder, "--context 16 --max-tokens 8", "hello\nhello again\n/reset\nhello\n");
  EXPECT_EQ(outcome.status, 0);
  const std::string answer = generated(folder, "hello", 8) + "\n";
  EXPECT_EQ(outcome.out, answer + answer);
  EXPECT_NE(outcome.err.find("the context of 16 tokens is full; /reset begins anew, and "
                             "--attention-sinks 4 --window 508 takes a stream of any length"),
            std::string::npos)
      << outcome.err;
}

TEST_F(Chat, RunsForEverWithAttentionSinks) {
  std::string turns;
  for (int i = 0; i < 20; ++i) turns += "hello\n";
  const ProgramRun outcome = chat(folder, "--attention-sinks 4 --window 28 --max-tokens 20", turns);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err.find("full"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("400 tokens"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tessera::test
