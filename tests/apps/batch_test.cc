// tessera batch, on a tiny random checkpoint: what it writes, what it refuses, and that a run that
// was cut off resumes where it stopped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

const ModelFolder& batch_model() {
  static const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  return folder;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class Batch : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void write_requests(const std::vector<Json>& requests) const {
    std::string text;
    for (const Json& request : requests) text += request.dump() + "\n";
    write_text(path("in.jsonl"), text);
  }
  std::string files(const std::string& output = "out.jsonl") const {
    return " --input '" + path("in.jsonl") + "' --output '" + path(output) + "' ";
  }
  ProgramRun batch(const std::string& arguments, const std::string& output = "out.jsonl") const {
    return run_program(TESSERA_PROGRAM,
                       "batch --device cpu --threads 1 --max-tokens 5 --ignore-eos" +
                           batch_model().option() + files(output) + arguments);
  }
  std::string output(const std::string& name = "out.jsonl") const { return read_text(path(name)); }
  // The lines of a run that must succeed, by custom_id.
  std::map<std::string, Json> results(const std::string& arguments = "") const {
    const ProgramRun outcome = batch(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::map<std::string, Json> by_id;
    for (const std::string& line : lines_of(output())) {
      const Json json = Json::parse(line);
      const bool is_new = by_id.emplace(json["custom_id"].get<std::string>(), json).second;
      EXPECT_TRUE(is_new) << line;
    }
    return by_id;
  }
  // What generate gives for the same flags.
  static Json generated(const std::string& arguments) {
    const ProgramRun outcome =
        run_program(TESSERA_PROGRAM, "generate --threads 1 --json --max-tokens 5 --ignore-eos" +
                                         batch_model().option() + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  }

  TemporaryFolder folder_;
};

// Enough requests of several kinds that some wait while others run.
std::vector<Json> many_requests() {
  std::vector<Json> requests;
  for (int i = 0; i < 24; ++i) {
    Json request = {
        {"custom_id", fmt::format("r{}", i)},
        {"prompt", std::string("abc") + std::string(static_cast<std::size_t>(i % 5), 'x')},
        {"max_tokens", 1 + i % 7},
        {"seed", i}};
    if (i % 6 == 0) request["n"] = 2;
    if (i % 8 == 0) request["top_p"] = 3;  // refused
    requests.push_back(request);
  }
  requests.push_back({{"prompt", "no id"}});
  requests.push_back({{"custom_id", "r1"}, {"prompt", "a second one"}});
  return requests;
}

TEST_F(Batch, AnswersWhatGenerateAnswers) {
  write_requests({{{"custom_id", "plain"}, {"prompt", "abc"}},
                  {{"custom_id", "seed"}, {"prompt", "abc"}, {"seed", 7}, {"temperature", 2}},
                  {{"custom_id", "greedy"}, {"prompt", "abc"}, {"temperature", 0}},
                  {{"custom_id", "ids"}, {"prompt_ids", {66, 67, 68}}, {"max_tokens", 3}}});
  const auto found = results("--seed 1 --concurrency 2");
  ASSERT_EQ(found.size(), 4u);
  const std::map<std::string, std::string> same = {{"plain", "--seed 1 abc"},
                                                   {"seed", "--seed 7 --temperature 2 abc"},
                                                   {"greedy", "--greedy abc"}};
  for (const auto& [id, arguments] : same) {
    const Json expected = generated(arguments), &json = found.at(id);
    EXPECT_EQ(json["token_ids"], expected["token_ids"]) << id;
    EXPECT_EQ(json["text"], expected["text"]) << id;
    EXPECT_EQ(json["finish_reason"], "max_tokens") << id;
    EXPECT_EQ(json["usage"], Json({{"prompt_tokens", 3}, {"generated_tokens", 5}})) << id;
    EXPECT_FALSE(json.contains("logprobs"));
  }
  EXPECT_EQ(found.at("ids")["token_ids"].size(), 3u);
}

TEST_F(Batch, LinesOverrideTheFlags) {
  const std::string text = generated("--greedy abc")["text"];
  write_requests(
      {{{"custom_id", "stop"}, {"prompt", "abc"}, {"stop", text.substr(2, 1)}},
       {{"custom_id", "stops"}, {"prompt", "abc"}, {"stop", {"\n", text.substr(0, 1)}}},
       {{"custom_id", "bias"}, {"prompt", "abc"}, {"logit_bias", {{"40", 1000}}}},
       {{"custom_id", "logprobs"}, {"prompt", "abc"}, {"logprobs", 2}},
       {{"custom_id", "n"}, {"prompt", "abc"}, {"n", 3}, {"temperature", 2}, {"seed", 5}},
       {{"custom_id", "null"}, {"prompt", "abc"}, {"max_tokens", nullptr}, {"priority", 3}},
       {{"custom_id", "varied"},
        {"prompt", "abc"},
        {"logit_bias", {{"40", 20}, {"41", 19}}},
        {"frequency_penalty", 5}}});
  const auto found = results("--greedy");
  EXPECT_EQ(found.at("stop")["finish_reason"], "stop_string");
  EXPECT_EQ(found.at("stop")["text"], text.substr(0, text.find(text[2])));
  EXPECT_EQ(found.at("stops")["text"], "");
  EXPECT_EQ(found.at("bias")["token_ids"], Json(std::vector<int>(5, 40)));
  EXPECT_EQ(found.at("logprobs")["logprobs"].size(), 5u);
  EXPECT_EQ(found.at("logprobs")["logprobs"][0]["top"].size(), 2u);
  EXPECT_EQ(found.at("null")["text"], text);
  EXPECT_EQ(found.at("varied")["token_ids"][0], 40);
  EXPECT_EQ(found.at("varied")["token_ids"][1], 41);
  const Json& n = found.at("n");
  EXPECT_FALSE(n.contains("text"));
  ASSERT_EQ(n["choices"].size(), 3u);
  EXPECT_EQ(n["usage"]["generated_tokens"], 15);
  for (int i = 0; i < 3; ++i) {
    const Json alone = generated("--temperature 2 --seed " + std::to_string(5 + i) + " abc");
    EXPECT_EQ(n["choices"][i]["index"], i);
    EXPECT_EQ(n["choices"][i]["token_ids"], alone["token_ids"]) << i;
  }
}

TEST_F(Batch, MessagesGoThroughTheChatTemplate) {
  const Json user = {{"role", "user"}, {"content", "abc"}};
  const Json answer = {{"role", "assistant"}, {"content", "de"}};
  write_requests({{{"custom_id", "one"}, {"messages", Json::array({user})}},
                  {{"custom_id", "three"}, {"messages", Json::array({user, answer, user})}},
                  {{"custom_id", "wrong"}, {"messages", Json::array({user, user})}}});
  const auto found = results("--greedy --chat-template mistral");
  const std::string turn = "[INST] abc [/INST]";
  EXPECT_EQ(found.at("one")["token_ids"], generated("--greedy '" + turn + "'")["token_ids"]);
  EXPECT_EQ(found.at("three")["token_ids"],
            generated("--greedy '" + turn + "de</s>" + turn + "'")["token_ids"]);
  EXPECT_NE(found.at("wrong")["error"].get<std::string>().find("user and assistant take turns"),
            std::string::npos);
}

TEST_F(Batch, ABadLineGetsAnErrorLineAndTheOthersRun) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"custom_id": "x", "promt": "a"})",
       "there is no field \"promt\"; did you mean \"prompt\"?"},
      {R"({"custom_id": "x"})", "there is no prompt; give exactly one of"},
      {R"({"custom_id": "x", "prompt": "a", "prompt_ids": [1]})", "there is more than one prompt"},
      {R"({"custom_id": "x", "prompt": 5})", "prompt is 5, it must be a string"},
      {R"({"custom_id": "x", "prompt": ""})", "the prompt is empty"},
      {R"({"custom_id": "x", "prompt_ids": "1"})", "prompt_ids is \"1\", it must be an array"},
      {R"({"custom_id": "x", "prompt_ids": [1, 2.5]})", "prompt_ids[1] is 2.5, it must be a token"},
      {R"({"custom_id": "x", "prompt_ids": [96]})", "token 0 of the prompt is 96"},
      {R"({"custom_id": "x", "prompt": "a", "temperature": -1})",
       "temperature is -1, it must be 0"},
      {R"({"custom_id": "x", "prompt": "a", "top_k": 1.5})", "top_k is 1.5, it must be a whole"},
      {R"({"custom_id": "x", "prompt": "a", "top_p": "1"})", "top_p is \"1\", it must be a number"},
      {R"({"custom_id": "x", "prompt": "a", "max_tokens": 0})", "max_tokens is 0"},
      {R"({"custom_id": "x", "prompt": "a", "n": 9})", "n is 9; it must be from 1 to 8"},
      {R"({"custom_id": "x", "prompt": "a", "n": 0})", "n is 0"},
      {R"({"custom_id": "x", "prompt": "a", "n": 100000000000})",  // their memory was taken first
       "n is 100000000000; it must be from 1 to 8"},
      {R"({"custom_id": "x", "prompt": "a", "seed": -1})", "seed is -1"},
      {R"({"custom_id": "x", "prompt": "a", "stop": ""})", "stop has an empty text"},
      {R"({"custom_id": "x", "prompt": "a", "stop": [1]})", "stop[0] is 1, it must be a string"},
      {R"({"custom_id": "x", "prompt": "a", "logprobs": 1001})", "logprobs is 1001"},
      {R"({"custom_id": "x", "prompt": "a", "ignore_eos": 1})", "ignore_eos is 1, it must be true"},
      {R"({"custom_id": "x", "prompt": "a", "logit_bias": {"a": 1}})", "is not a token id"},
      {R"({"custom_id": "x", "prompt": "a", "logit_bias": {"1": "a"}})", "it must be a number"},
      {R"({"custom_id": "x", "prompt": "a", "logit_bias": {"96": 1}})",
       "logit_bias names token 96"},
      {R"({"custom_id": "x", "messages": [{"role": "user", "content": "a"}]})", "no chat template"},
  };
  std::string text;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    Json request = Json::parse(bad[i].first);
    request["custom_id"] = "bad" + std::to_string(i);
    text += request.dump() + "\n";
  }
  write_text(path("in.jsonl"), text + "{\"custom_id\": \"good\", \"prompt\": \"abc\"}");
  const auto found = results();
  EXPECT_EQ(found.at("good")["token_ids"].size(), 5u);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const Json& json = found.at("bad" + std::to_string(i));
    EXPECT_EQ(json.size(), 2u) << json;
    EXPECT_NE(json["error"].get<std::string>().find(bad[i].second), std::string::npos)
        << bad[i].first << "\n"
        << json;
  }
}

TEST_F(Batch, LinesWithoutAnIdOfTheirOwnAreNamedByTheirNumber) {
  write_text(path("in.jsonl"),
             "{\"custom_id\": \"a\", \"prompt\": \"abc\"}\n\n  \r\nnot JSON\n{\"prompt\": \"a\"}\n"
             "{\"custom_id\": 5, \"prompt\": \"a\"}\n{\"custom_id\": \"\", \"prompt\": \"a\"}\n"
             "{\"custom_id\": \"a\", \"prompt\": \"b\"}\n[1]\n");
  const std::map<int, std::string> expected = {
      {4, "line 4: not valid JSON"},
      {5, "line 5: custom_id is missing, it must be a string"},
      {6, "line 6: custom_id is 5, it must be a string"},
      {7, "line 7: custom_id is \"\", it must not be empty"},
      {8, "line 8: the custom_id \"a\" is that of line 1; each may be used once"},
      {9, "line 9 is an array of 1, it must be an object"}};
  for (int again = 0; again < 2; ++again) {  // the second run finds all of them done
    const ProgramRun outcome = batch("");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::map<int, std::string> found;
    for (const std::string& line : lines_of(output())) {
      const Json json = Json::parse(line);
      if (json.contains("line")) found[json["line"]] = json["error"];
    }
    EXPECT_EQ(lines_of(output()).size(), 7u);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [line, text] : expected)
      EXPECT_TRUE(found[line].starts_with(text)) << found[line];
  }
}

TEST_F(Batch, ARunThatWasCutOffGoesOnWhereItWas) {
  write_requests(many_requests());
  const ProgramRun whole = batch("--concurrency 4 --json", "whole.jsonl");
  const Json summary = Json::parse(whole.out);
  EXPECT_EQ(summary["requests"], 26);
  EXPECT_EQ(summary["answered"], 21);
  EXPECT_EQ(summary["errors"], 5);
  EXPECT_EQ(summary["skipped"], 0);
  EXPECT_EQ(summary["left"], 0);
  EXPECT_GT(summary["tokens_per_s"], 0.0);
  const std::string text = output("whole.jsonl");
  std::vector<std::string> expected = lines_of(text);
  ASSERT_EQ(expected.size(), 26u);
  std::sort(expected.begin(), expected.end());
  // In the first line, between two lines, in the middle of one, before the last newline, at the
  // end.
  for (const std::size_t cut :
       {std::size_t{3}, text.find('\n') + 1, text.size() / 2, text.size() - 1, text.size()}) {
    write_text(path("out.jsonl"), text.substr(0, cut));
    const auto done =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    const ProgramRun rest = batch("--concurrency 3 --json");
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(Json::parse(rest.out)["skipped"], done) << cut;
    std::vector<std::string> found = lines_of(output());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected) << cut;
  }
}

TEST_F(Batch, KilledAndStartedAgainItLosesNothingAndDoesNothingTwice) {
  std::vector<Json> requests = many_requests();
  for (Json& request : requests) request["max_tokens"] = 60;
  write_requests(requests);
  batch("", "whole.jsonl");
  std::vector<std::string> expected = lines_of(output("whole.jsonl")), found;
  const std::string command = std::string("'") + TESSERA_PROGRAM +
                              "' batch --threads 1 --ignore-eos" + batch_model().option() + files();
  const std::string script = command + "& pid=$!; for i in $(seq 500); do " + "[ $(cat '" +
                             path("out.jsonl") + "' 2>/dev/null | wc -l) -ge 3 ] && break; " +
                             "sleep 0.01; done; kill -9 $pid; wait $pid";
  write_text(path("kill.sh"), script);
  run_program("/bin/sh", "'" + path("kill.sh") + "'");
  ASSERT_GE(lines_of(output()).size(), 3u);
  EXPECT_EQ(batch("").status, 0);
  found = lines_of(output());
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

// The second request never ends by itself.
TEST_F(Batch, ASignalEndsItCleanlyWithWhatIsDone) {
  write_requests({{{"custom_id", "short"}, {"prompt", "abc"}},
                  {{"custom_id", "endless"}, {"prompt", "abc"}, {"max_tokens", -1}}});
  const std::string command = std::string("'") + TESSERA_PROGRAM +
                              "' batch --threads 1 --max-tokens 2 --ignore-eos --window 32" +
                              batch_model().option() + files();
  for (const auto& [signal, status] : {std::pair{"TERM", 143}, std::pair{"INT", 130}}) {
    std::filesystem::remove(path("out.jsonl"));
    // A shell's background job ignores SIGINT, so the program runs in front.
    write_text(path("end.sh"), std::string("(for i in $(seq 500); do [ -s '") + path("out.jsonl") +
                                   "' ] && break; sleep 0.01; done; kill -" + signal +
                                   " $$) & exec " + command);
    const ProgramRun outcome = run_program("/bin/sh", "'" + path("end.sh") + "'");
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_NE(outcome.err.find("interrupted with 1 left; run the same command again"),
              std::string::npos)
        << outcome.err;
    ASSERT_EQ(lines_of(output()).size(), 1u);
    EXPECT_EQ(Json::parse(output())["custom_id"], "short");
  }
}

// One of three requests never ends by itself, so the bar stays until the interrupt.
TEST_F(Batch, TheBarShowsTheShareAndTheSpeed) {
  write_requests({{{"custom_id", "a"}, {"prompt", "abc"}},
                  {{"custom_id", "b"}, {"prompt", "abc"}},
                  {{"custom_id", "endless"}, {"prompt", "abc"}, {"max_tokens", -1}}});
  const ProgramRun outcome = interrupt_on_terminal(
      TESSERA_PROGRAM,
      "batch --device cpu --threads 1 --max-tokens 2 --ignore-eos --window 32" +
          batch_model().option() + files(),
      "batch \\[={20} {10}\\] 67%, [1-9][0-9]* tokens/s, [0-9]+ s left");
  EXPECT_EQ(outcome.status, 130) << outcome.out;
  EXPECT_NE(outcome.out.find("interrupted with 1 left"), std::string::npos) << outcome.out;
}

TEST_F(Batch, AnOutputOfSomethingElseIsRefusedAndLeftAsItIs) {
  write_requests({{{"custom_id", "a"}, {"prompt", "abc"}}});
  const std::vector<std::pair<std::string, std::string>> foreign = {
      {"{\"custom_id\":\"b\",\"text\":\"\"}\n",
       "which no request has: the results belong to another"},
      {"{\"custom_id\":null,\"line\":1,\"error\":\"\"}\n", "belong to another input"},
      {"{\"custom_id\":null,\"line\":2,\"error\":\"\"}\n", "belong to another input"},
      {"{\"custom_id\":\"a\",\"prompt\":\"abc\"}\n", "is not a result of tessera batch"},
      {"my notes\n", "not an output of tessera batch: give another --output"},
      {"my notes", "is not an output of tessera batch: give another --output"}};
  for (const auto& [text, expected] : foreign) {
    write_text(path("out.jsonl"), text);
    const ProgramRun outcome = batch("");
    EXPECT_EQ(outcome.status, 1) << text;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << text << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(output(), text);
  }
}

TEST_F(Batch, NothingLeftNeedsNoModel) {
  write_requests({{{"custom_id", "a"}, {"prompt", "abc"}}});
  EXPECT_EQ(batch("").status, 0);
  const ProgramRun again = run_program(TESSERA_PROGRAM, "batch --model /nowhere --json" + files());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["skipped"], 1);
  EXPECT_NE(again.err.find("1 requests: 0 answered, 0 errors, 1 skipped (done before)"),
            std::string::npos)
      << again.err;
}

TEST_F(Batch, GuessesAheadDoNotChangeTheResults) {
  write_requests(many_requests());
  batch("--greedy", "plain.jsonl");
  const ProgramRun guessed = batch("--greedy --json --speculate ngram");
  ASSERT_EQ(guessed.status, 0) << guessed.err;
  const Json speculation = Json::parse(guessed.out)["speculation"];
  EXPECT_EQ(speculation["kind"], "ngram");
  EXPECT_GE(speculation["tokens_per_pass"], 1.0);
  EXPECT_NE(guessed.err.find("speculation (ngram): "), std::string::npos) << guessed.err;
  std::vector<std::string> a = lines_of(output("plain.jsonl")), b = lines_of(output());
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

TEST_F(Batch, WrongUseGetsOneSentence) {
  write_requests({{{"custom_id", "a"}, {"prompt", "abc"}}});
  const struct {
    std::string arguments;
    int status;
    std::string expected;
  } cases[] = {
      {"", 2, "--input"},
      {"--input '" + path("in.jsonl") + "'", 2, "--output"},
      {"--input '" + path("in.jsonl") + "' --output '" + path("in.jsonl") + "'", 2,
       "the same file"},
      {"--input /nowhere/in --output '" + path("o") + "'", 1, "cannot read /nowhere/in"},
      {"--input '" + folder_.path().string() + "' --output '" + path("o") + "'", 1,
       "is not a regular file"},
      {"--input '" + path("in.jsonl") + "' --output /nowhere/out", 1, "cannot write /nowhere/out"},
      {files() + "--concurrency 0", 2, "--concurrency 0: must be a whole number from 1 to 4096"},
      {files() + "--max-tokens 0", 2, "--max-tokens 0 writes nothing"},
      {files() + "--top-p 2", 2, "--top-p 2: must be above 0"},
      {files() + "--draft x --speculate ngram", 2, "leave out --speculate ngram"},
      {files() + "--context 8 --window 4", 2, "--context 8 sizes a full cache"},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = run_program(TESSERA_PROGRAM, "batch " + c.arguments);
    EXPECT_EQ(outcome.status, c.status) << c.arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << c.arguments << "\n"
                                                               << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace tessera::test
