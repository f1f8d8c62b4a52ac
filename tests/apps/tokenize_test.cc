// tessera tokenize as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "apps/program.h"
#include "support/files.h"
#include "support/model_folder.h"

namespace tessera::test {
namespace {

std::string tokenizer_file(const std::string& name) {
  return data_path("tokenizers/" + name + ".tokenizer.json").string();
}

// Runs the program with one of the tiny tokenizers.
Outcome tokenize(const std::string& name, const std::string& arguments) {
  return run("tokenize --tokenizer '" + tokenizer_file(name) + "' " + arguments);
}

TEST(TokenizeCommand, JsonHasIdsAndTokens) {
  const Outcome outcome = tokenize("tiny-llama3", "--json --text 'a<|end|>'");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["tokens"], (nlohmann::json{"a", "<|end|>"}));
  EXPECT_EQ(json["ids"].size(), 2u);
  EXPECT_EQ(json.size(), 2u);
}

TEST(TokenizeCommand, AddsSpecialTokensOnlyWhenAsked) {
  const auto tokens = [](const std::string& arguments) {
    return nlohmann::json::parse(tokenize("tiny-llama2", "--json " + arguments).output)["tokens"];
  };
  EXPECT_EQ(tokens("--text ' '"), nlohmann::json{"▁"});
  EXPECT_EQ(tokens("--text ' ' --add-special"), (nlohmann::json{"<s>", "▁", "</s>"}));
}

TEST(TokenizeCommand, SpecialTokensInTheTextStayTextWhenAsked) {
  const auto tokens = [](const std::string& arguments) {
    return nlohmann::json::parse(tokenize("tiny-llama3", "--json " + arguments).output)["tokens"];
  };
  EXPECT_EQ(tokens("--text 'a<|end|>'"), (nlohmann::json{"a", "<|end|>"}));
  const nlohmann::json as_text = tokens("--no-parse-special --text 'a<|end|>'");
  std::string all;
  for (const std::string token : as_text) {
    EXPECT_NE(token, "<|end|>");
    all += token;
  }
  EXPECT_EQ(all, "a<|end|>");
  const Outcome help = run("tokenize --help");
  EXPECT_NE(help.output.find("--no-parse-special"), std::string::npos) << help.output;
}

TEST(TokenizeCommand, PrintsALineForEachToken) {
  const Outcome outcome = tokenize("tiny-llama2", "--text ' ' --add-special");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("      1  \"<s>\"  special\n"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("\n3 tokens: 1,"), std::string::npos) << outcome.output;
}

TEST(TokenizeCommand, DecodesWhatItEncodes) {
  const std::string text = "Once upon a time, 北京 🙂\n";
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "text").string();
  const std::string encoded = (folder.path() / "ids").string();
  write_text(file, text);
  ASSERT_EQ(tokenize("tiny-gpt2", "--json < '" + file + "' > '" + encoded + "'").status, 0);
  const auto ids = nlohmann::json::parse(read_text(encoded))["ids"].dump();
  EXPECT_EQ(tokenize("tiny-gpt2", "--decode '" + ids + "'").output, text + "\n");
  write_text(file, ids);
  EXPECT_EQ(tokenize("tiny-gpt2", "--decode < '" + file + "'").output, text + "\n");
  const auto json =
      nlohmann::json::parse(tokenize("tiny-gpt2", "--json --decode '" + ids + "'").output);
  EXPECT_EQ(json["text"], text);
}

TEST(TokenizeCommand, LeavesSpecialTokensOutWhenAsked) {
  EXPECT_EQ(tokenize("tiny-llama2", "--decode 1,2").output, "<s></s>\n");
  EXPECT_EQ(tokenize("tiny-llama2", "--decode 1,2 --skip-special").output, "\n");
}

TEST(TokenizeCommand, ReadsAModelsFolder) {
  const TemporaryFolder folder;
  write_text(folder.path() / "tokenizer.json", read_text(tokenizer_file("tiny-qwen")));
  const Outcome outcome = run("tokenize --json --text a --model '" + folder.path().string() + "'");
  EXPECT_EQ(nlohmann::json::parse(outcome.output)["tokens"], nlohmann::json{"a"});
}

TEST(TokenizeCommand, AnEmptyTextHasNoTokens) {
  EXPECT_EQ(tokenize("tiny-gpt2", "--json --text ''").output, "{\"ids\":[],\"tokens\":[]}\n");
  EXPECT_EQ(tokenize("tiny-gpt2", "< /dev/null").output, "0 tokens: \n");
}

TEST(TokenizeCommand, HelpsWithExamples) {
  const Outcome outcome = run("tokenize --help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("Examples:\n  tessera tokenize --model DIR"), std::string::npos);
}

TEST(TokenizeCommand, BadInputIsRefusedWithASentence) {
  const std::string with = "--tokenizer '" + tokenizer_file("tiny-gpt2") + "' ";
  const TemporaryFolder folder;
  const struct {
    std::string arguments, expected;
  } cases[] = {
      {"--text a", "--tokenizer"},
      {with + "--model x --text a", "--model"},
      {"--tokenizer no/such/file --text a", "no/such/file"},
      {"--model '" + folder.path().string() + "' --text a", "tokenizer.json"},
      {with + "--text \"$(printf 'ab\\377')\"", "the text is not UTF-8: byte 2 is 0xFF"},
      {with + "--decode 1,two",
       "--decode: 'two' is not a token id; give whole numbers separated by commas, such as 1,2,3"},
      {with + "--decode 99999999999", "--decode: '99999999999' is not a token id"},
      {with + "--decode 1,123456", "token id 123456 is not in the vocabulary; ids are below 703"},
      {with + "--decode 1 --text a", "--text"},
      {with + "--skip-special --text a", "--decode"},
      {with + "--decode 1 --no-parse-special", "--no-parse-special"},
      {with + "--txet a", "--txet"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = run("tokenize " + c.arguments);
    EXPECT_NE(outcome.status, 0) << c.arguments;
    EXPECT_NE(outcome.output.find(c.expected), std::string::npos) << outcome.output;
  }
}

TEST(TokenizeCommand, AChatIsWrittenByTheFoldersTemplate) {
  const ModelFolder folder("llama-int4", TinyVocabulary::bytes);
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ note }}\n{% endfor %}"
               "{% if add_generation_prompt %}assistant:{% endif %}");
  folder.write("list.json", R"([{"role": "user", "content": "hi<|endoftext|>"}])");
  folder.write("object.json", R"({"messages": [{"content": "hi", "role": "user"}], "note": "!",
                                  "add_generation_prompt": false})");
  const auto tokens = [&](const std::string& file) {
    const Outcome outcome = run("tokenize --json" + folder.option() + "--chat '" +
                                (folder.path() / file).string() + "'");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return nlohmann::json::parse(outcome.output);
  };
  const auto list = tokens("list.json");
  EXPECT_EQ(list["text"], "user: hi<|endoftext|>\nassistant:");
  EXPECT_EQ(list["ids"].size(), list["text"].get<std::string>().size());  // no token of the model
  EXPECT_EQ(tokens("object.json")["text"], "user: hi!\n");
  const Outcome plain =
      run("tokenize" + folder.option() + "--chat '" + (folder.path() / "list.json").string() + "'");
  EXPECT_EQ(plain.output.find("user: hi<|endoftext|>\nassistant:\n\n"), 0u) << plain.output;
  EXPECT_NE(plain.output.find("\n32 tokens: "), std::string::npos) << plain.output;
}

TEST(TokenizeCommand, AChatThatIsWrongIsRefused) {
  const ModelFolder folder("llama-int4", TinyVocabulary::bytes);
  const std::string file = (folder.path() / "chat.json").string();
  const auto refused = [&](const std::string& json, const std::string& arguments = "") {
    write_text(file, json);
    const Outcome outcome =
        run("tokenize" + folder.option() + arguments + " --chat '" + file + "'");
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    return outcome.output;
  };
  const std::string good = R"([{"role": "user", "content": "a"}])";
  EXPECT_NE(refused(good).find("has no chat template; choose one with --chat-template"),
            std::string::npos);
  EXPECT_NE(refused("5").find("chat.json: a list of messages is needed"), std::string::npos);
  EXPECT_NE(refused("[5]").find("chat.json: message 0 must be an object with a role"),
            std::string::npos);
  EXPECT_NE(refused("{").find("chat.json"), std::string::npos);
  EXPECT_NE(refused(R"([{"role": "tool", "content": "a"}])", "--chat-template llama2")
                .find("user and assistant take turns"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::test
