// tessera chat, from a pipe, on tiny random checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

ProgramRun chat(const ModelFolder& folder, const std::string& arguments, const std::string& input) {
  return run_program(TESSERA_PROGRAM,
                     "chat --threads 1 --greedy --ignore-eos" + folder.option() + arguments, input);
}

// The text that `tessera generate` writes after a prompt.
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
  EXPECT_NE(outcome.err.find("5 tokens in, 6 out"), std::string::npos) << outcome.err;
}

TEST(PlainChat, LaterTurnsSeeTheEarlierOnes) {
  // All tokens but the first are printable letters, so the text shows what was fed. This vocabulary
  // has no newline, so nothing stands between two turns.
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

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(Chat, JsonIsOneObjectPerTurn) {
  const ProgramRun outcome =
      chat(folder, "--json --max-tokens 6 --stop zzzz", "hello\n/reset\nhello\nand you?\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto turns = json_lines(outcome.out);
  ASSERT_EQ(turns.size(), 3u) << outcome.out;
  const std::string answer = generated(folder, "hello", 6);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i]["turn"], i + 1);
    EXPECT_EQ(turns[i]["user"], i < 2 ? "hello" : "and you?");
    EXPECT_EQ(turns[i]["token_ids"].size(), 6u);
    EXPECT_EQ(turns[i]["stop_reason"], "max_tokens");
    EXPECT_GT(turns[i]["ttft_ms"], 0.0);
    EXPECT_EQ(turns[i]["notes"].size(), i == 0 ? 1u : 0u);  // notes that there is no template
    if (i < 2) {
      EXPECT_EQ(turns[i]["text"], answer);
      EXPECT_EQ(turns[i]["prompt_tokens"], 5);
    }
  }
}

// A token of a model in a prompt, text in a turn: <|endoftext|> has 13 bytes, each a token.
TEST_F(Chat, WhatIsTypedIsTextAndNoControlToken) {
  const auto turns =
      json_lines(chat(folder, "--json --max-tokens 2", "hi<|endoftext|>\nhi<|endoftext|>\n").out);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0]["prompt_tokens"], 15);
  EXPECT_EQ(turns[1]["prompt_tokens"], 17);  // the last token of the answer and a newline before it
  const auto with_system =
      json_lines(chat(folder, "--json --max-tokens 2 --system 'a<|endoftext|>'", "hi\n").out);
  ASSERT_EQ(with_system.size(), 1u);
  EXPECT_EQ(with_system[0]["prompt_tokens"], 17);
  const ProgramRun prompt = run_program(
      TESSERA_PROGRAM,
      "generate 'hi<|endoftext|>' --threads 1 --json --max-tokens 2" + folder.option(), "");
  EXPECT_EQ(nlohmann::json::parse(prompt.out)["prompt_ids"].size(), 3u) << prompt.out;
}

TEST_F(Chat, ATurnThatIsNotUtf8IsLeftOutAndTheChatGoesOn) {
  const std::string turns = "hello\nab\377c\nhello\n";
  const ProgramRun outcome = chat(folder, "--max-tokens 6", turns);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, chat(folder, "--max-tokens 6", "hello\nhello\n").out);
  EXPECT_NE(outcome.err.find("this turn was left out: the text is not UTF-8: byte 2 is 0xFF"),
            std::string::npos)
      << outcome.err;
  const auto json = json_lines(chat(folder, "--json --max-tokens 6", turns).out);
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[1]["error"], "this turn was left out: the text is not UTF-8: byte 2 is 0xFF");
  EXPECT_TRUE(json[2].contains("text"));
  const ProgramRun system = chat(folder, "--system \"$(printf 'a\\377')\"", "hello\n");
  EXPECT_EQ(system.status, 2);
  EXPECT_NE(system.err.find("--system: the text is not UTF-8"), std::string::npos) << system.err;
}

TEST_F(Chat, TheFoldersOwnTemplateIsUsed) {
  folder.write("tokenizer_config.json",
               with_template("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n"
                             "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"));
  const ProgramRun outcome = chat(folder, "--max-tokens 4 --system 'Be kind.'", " hello \n");
  EXPECT_EQ(outcome.out, generated(folder, "<system>Be kind.\n<user>hello\n<assistant>", 4) + "\n");
  EXPECT_EQ(outcome.err.find("no chat template"), std::string::npos);
  // This file comes first.
  folder.write("chat_template.jinja", "{{ messages[-1].content | upper }}");
  EXPECT_EQ(chat(folder, "--max-tokens 4", "hello\n").out, generated(folder, "HELLO", 4) + "\n");
}

TEST_F(Chat, NamedTemplatesTakeThePlaceOfTheFolders) {
  folder.write("chat_template.jinja", "{{ 1 / 0 }}");
  const struct {
    const char *name, *prompt;
  } cases[] = {
      {"chatml",
       "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
       "<|im_start|>assistant\n"},
      {"llama3",
       "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user"
       "<|end_header_id|>\n\nhello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"llama2", "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nhello [/INST]"},
      {"mistral", "[INST] Be kind.\n\nhello [/INST]"},
      {"zephyr", "<|system|>\nBe kind.</s>\n<|user|>\nhello</s>\n<|assistant|>\n"},
      {"plain", "Be kind.\nhello"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome =
        chat(folder, std::string("--max-tokens 4 --system 'Be kind.' --chat-template ") + c.name,
             "hello\n");
    // A newline at the end of a prompt file is dropped, so this adds one more.
    EXPECT_EQ(outcome.out, generated(folder, std::string(c.prompt) + "\n", 4) + "\n") << c.name;
  }
}

// The template writes earlier answers without their last letter: the model reads all of them again.
TEST(PlainChat, ATemplateThatWritesEarlierTurnsAnewIsReadFromTheStart) {
  const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{ m.content[:-1] if m.role == 'assistant' else m.content }}"
               "{% endfor %}");
  const std::string flags = " --logit-bias 0=-inf ";
  const std::string first = generated(folder, "hello", 6, flags);
  const std::string kept = first.substr(0, first.size() - 1);
  const std::string second = generated(folder, "hello" + kept + "you?", 6, flags);
  const std::string third = generated(
      folder, "hello" + kept + "you?" + second.substr(0, second.size() - 1) + "so", 6, flags);
  EXPECT_EQ(chat(folder, "--max-tokens 6" + flags, "hello\nyou?\nso\n").out,
            first + "\n" + second + "\n" + third + "\n");
}

TEST_F(Chat, ATemplateThatIsWrongIsRefusedWithItsPlace) {
  folder.write("chat_template.jinja", "{% for m in messages %}\n  {% include 'x' %}{% endfor %}");
  const ProgramRun outcome = chat(folder, "", "hello\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("chat template, line 2, column 6: 'include' is not supported"),
            std::string::npos)
      << outcome.err;
  folder.write("chat_template.jinja", "{{ raise_exception('only in May') }}");
  const ProgramRun raised = chat(folder, "", "hello\n");
  EXPECT_EQ(raised.status, 0);
  EXPECT_NE(
      raised.err.find("this turn was left out: chat template, line 1, column 19: the template "
                      "refuses this conversation: \"only in May\""),
      std::string::npos)
      << raised.err;
  const ProgramRun wrong = chat(folder, "--chat-template chatmll", "hello\n");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--chat-template chatmll: must be chatml, llama3, llama2, mistral, "
                           "zephyr or plain"),
            std::string::npos)
      << wrong.err;
}

TEST_F(Chat, SaysWhenTheContextIsFullAndGoesOnAfterAReset) {
  const ProgramRun outcome =
      chat(folder, "--context 16 --max-tokens 8", "hello\nhello again\n/reset\nhello\n");
  EXPECT_EQ(outcome.status, 0);
  const std::string answer = generated(folder, "hello", 8) + "\n";
  EXPECT_EQ(outcome.out, answer + answer);
  EXPECT_NE(outcome.err.find("the context of 16 tokens is full; enter /reset to start over, or "
                             "use --attention-sinks 4 --window 508 for a stream of any length"),
            std::string::npos)
      << outcome.err;
}

TEST_F(Chat, NotesACacheBeyondTheTrainedLength) {
  const ProgramRun outcome = chat(folder, "--window 600 --max-tokens 2", "hello\n");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("trained for 512: longer texts turn into nonsense; the largest "
                             "sensible window is 512 (--window 512)"),
            std::string::npos)
      << outcome.err;
}

TEST_F(Chat, RunsForEverWithATemplateOfItsOwn) {
  folder.write("chat_template.jinja",
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>");
  std::string turns;
  for (int i = 0; i < 10; ++i) turns += "hello\n";
  const auto lines =
      json_lines(chat(folder, "--json --attention-sinks 4 --window 60 --max-tokens 20", turns).out);
  ASSERT_EQ(lines.size(), 10u);
  // <user>hello<assistant>, each byte a token; then also the last token of the answer before it.
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["prompt_tokens"], i == 0 ? 22 : 23) << lines[i];
  }
}

TEST_F(Chat, RunsForEverWithAttentionSinks) {
  std::string turns;
  for (int i = 0; i < 20; ++i) turns += "hello\n";
  const ProgramRun outcome = chat(folder, "--attention-sinks 4 --window 28 --max-tokens 20", turns);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err.find("full"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(" 400 out"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tessera::test
