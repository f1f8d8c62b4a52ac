// tessera generate, on tiny random checkpoints: what it prints, and where it ends. What it refuses
// is in generate_refusals_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/changed_checkpoint.h"
#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

const ModelFolder& neox() {
  static const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  return folder;
}

ProgramRun generate(const ModelFolder& folder, const std::string& arguments,
                    const std::string& input = "") {
  return run_program(TESSERA_PROGRAM, "generate --threads 1" + folder.option() + arguments, input);
}

Json json_of(const ProgramRun& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(Generate, JsonHasWhatARunIs) {
  const Json json = json_of(
      generate(neox(), "--device cpu --greedy --ignore-eos --max-tokens 5 --json 'Once upon'"));
  EXPECT_EQ(json["prompt_ids"].size(), 9u);
  EXPECT_EQ(json["prompt_ids"][0], 'O' - 31);
  EXPECT_EQ(json["token_ids"].size(), 5u);
  EXPECT_TRUE(json["text"].is_string());
  for (const char* key : {"ttft_ms", "tpot_ms", "tokens_per_s", "prefill_ms"}) {
    EXPECT_GT(json[key].get<double>(), 0.0) << key;
  }
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["weights"], "dense");
  EXPECT_EQ(json["dtype"], "f32");
  EXPECT_EQ(json["cache_dtype"], "f32");
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["stop_reason"], "max_tokens");
  EXPECT_GT(json["memory_bytes"]["weights"], 0);
  EXPECT_GT(json["memory_bytes"]["kv_cache"], 0);
  EXPECT_FALSE(json.contains("logprobs"));
}

TEST(Generate, KeysAndValuesOf8BitsTakeLessMemory) {
  const auto run = [&](const std::string& options) {
    return generate(neox(),
                    "--device cpu --greedy --ignore-eos --max-tokens 5 " + options + " abc");
  };
  const Json wide = json_of(run("--json"));
  for (const char* dtype : {"int8", "fp8"}) {
    for (const char* engine : {"", " -n 2"}) {
      const Json json = json_of(run("--json --kv-dtype " + std::string(dtype) + engine));
      EXPECT_EQ(json["cache_dtype"], dtype);
    }
    const Json json = json_of(run("--json --kv-dtype " + std::string(dtype)));
    EXPECT_LT(json["memory_bytes"]["kv_cache"], wide["memory_bytes"]["kv_cache"]);
    const ProgramRun text = run("--kv-dtype " + std::string(dtype));
    EXPECT_NE(text.err.find(" (" + std::string(dtype) + "), peak "), std::string::npos) << text.err;
  }
  EXPECT_NE(run("--kv-dtype int4").err.find("--kv-dtype"), std::string::npos);
}

TEST(Generate, KeysAndValuesAreF16BesideActivationsOf8Bits) {
  const auto stored = [&](const std::string& options) {
    return json_of(generate(
        neox(), "--device cpu --greedy --max-tokens 2 --json " + options + " abc"))["cache_dtype"];
  };
  for (const char* engine : {"", " -n 2"}) {
    EXPECT_EQ(stored(std::string("--weights int8") + engine), "f16");
    EXPECT_EQ(stored(std::string("--weights int8 --kv-dtype f32") + engine), "f32");
    EXPECT_EQ(stored(std::string("--weights int8 --activations exact") + engine), "f32");
    EXPECT_EQ(stored(std::string("--weights dense") + engine), "f32");
  }
}

TEST(Generate, PlainTextIsTheTextOfTheJson) {
  const std::string arguments = "--greedy --ignore-eos --max-tokens 20 'Once upon'";
  const ProgramRun plain = generate(neox(), arguments);
  const Json json = json_of(generate(neox(), "--json " + arguments));
  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(plain.out, json["text"].get<std::string>() + "\n");
  const ProgramRun echo = generate(neox(), "--echo " + arguments);
  EXPECT_EQ(echo.out, "Once upon" + plain.out);
}

TEST(Generate, EndsWithTwoLinesOnWhatItTook) {
  const ProgramRun outcome =
      generate(neox(), "--device cpu --greedy --ignore-eos --max-tokens 4 abc");
  ASSERT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
  for (const char* part : {"3 tokens in, 4 out (max_tokens): first ", " ms each, ", "weights ",
                           " (dense), KV ", ", peak ", "; cpu (", ", 1 thread)"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
  }
  const std::size_t first = outcome.err.find('\n');
  EXPECT_LE(std::max(first, outcome.err.size() - first - 2), 90u) << outcome.err;
}

// The vocabulary is so large that the tied head has more weights than the layers have.
TEST(Generate, APackedModelWithADenseHeadIsNotCalledDense) {
  constexpr std::int64_t kVocab = 1200;
  const TemporaryFolder folder;
  const std::string model = (folder.path() / "dense").string();
  const std::string packed = (folder.path() / "int4").string();
  std::filesystem::create_directory(model);
  copy_checkpoint(data_path("goldens/llama-biases-tied"), model);
  Json config = Json::parse(read_text(model + "/config.json"));
  config["vocab_size"] = kVocab;
  write_text(model + "/config.json", config.dump());
  EditableFile weights = read_editable(model + "/model.safetensors");
  EditableTensor& table = weights.at("model.embed_tokens.weight");
  table.data.resize(table.data.size() / static_cast<std::size_t>(table.shape[0]) * kVocab);
  table.shape[0] = kVocab;
  weights.write(model + "/model.safetensors");
  const ProgramRun quantized = run_program(
      TESSERA_PROGRAM, "quantize --format int4 --group 32 --out " + packed + " --model " + model);
  ASSERT_EQ(quantized.status, 0) << quantized.err;
  for (const std::string& options : {packed, model + " --weights int4 --keep-dense lm_head"}) {
    const ProgramRun outcome = run_program(
        TESSERA_PROGRAM, "generate --max-tokens 2 --json --prompt-ids 5,6 --model " + options);
    const Json json = json_of(outcome);
    EXPECT_EQ(json["weights"], "int4") << options;
    EXPECT_EQ(json["weights_text"], "int4, dense head") << options;
    EXPECT_NE(outcome.err.find("(int4, dense head)"), std::string::npos) << outcome.err;
  }
}

TEST(Generate, SaysThatAPackedCheckpointStaysPackedAsItIs) {
  const auto notes = [](const std::string& golden, const std::string& options) {
    const ModelFolder folder(golden, TinyVocabulary::bytes);
    return json_of(generate(folder, "--max-tokens 1 --json --prompt-ids 1 " + options))["notes"];
  };
  EXPECT_EQ(notes("llama-nvfp4-head", "--weights int4"),
            Json({"the checkpoint is already packed as nvfp4; --weights int4 applies only to its "
                  "dense layers, and it has none"}));
  EXPECT_EQ(notes("llama-nvfp4", "--weights int4"),
            Json({"the checkpoint is already packed as nvfp4; --weights int4 applies only to its "
                  "dense layers"}));
  EXPECT_EQ(notes("llama-nvfp4", ""), Json::array());
  EXPECT_EQ(notes("llama-gqa", "--weights int4"), Json::array());
}

TEST(Generate, PromptsFromIdsFilesAndStandardInputAreTheSame) {
  const std::string rest = " --greedy --ignore-eos --max-tokens 6 --json ";
  const Json text = json_of(generate(neox(), "abc" + rest));
  const TemporaryFolder folder;
  write_text(folder.path() / "prompt.txt", "abc\n");
  const std::string file = (folder.path() / "prompt.txt").string();
  const Json from_ids = json_of(generate(neox(), "--prompt-ids '66, 67,68'" + rest));
  const Json from_file = json_of(generate(neox(), "--prompt-file " + file + rest));
  const Json from_input = json_of(generate(neox(), "--prompt-file -" + rest, "abc"));
  for (const Json& json : {from_ids, from_file, from_input}) {
    EXPECT_EQ(json["prompt_ids"], text["prompt_ids"]);
    EXPECT_EQ(json["token_ids"], text["token_ids"]);
  }
}

TEST(Generate, TheSeedDecidesOnAnyNumberOfThreads) {
  const auto draw = [](const std::string& arguments) {
    return json_of(generate(neox(), "--ignore-eos --temperature 2 --max-tokens 24 --json abc " +
                                        arguments))["token_ids"];
  };
  EXPECT_EQ(draw("--seed 3"), draw("--seed 3"));
  EXPECT_NE(draw("--seed 3"), draw("--seed 4"));
  const ProgramRun two =
      run_program(TESSERA_PROGRAM, "generate --threads 2" + neox().option() +
                                       "--ignore-eos --temperature 2 --max-tokens 24 --json abc "
                                       "--seed 3");
  EXPECT_EQ(json_of(two)["token_ids"], draw("--seed 3"));
}

TEST(Generate, StopStringsEndTheTextAndDoNotShow) {
  const std::string arguments = "--greedy --ignore-eos --max-tokens 30 --json abc ";
  const std::string text = json_of(generate(neox(), arguments))["text"];
  ASSERT_GE(text.size(), 10u);
  const std::string stop = text.substr(5, 3);
  std::string quoted;
  for (const char c : stop) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const Json json = json_of(generate(neox(), arguments + "--stop '" + quoted + "' --stop zzzz"));
  EXPECT_EQ(json["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(json["stop_reason"], "stop_string");
}

TEST(Generate, SamplingFlagsReachTheSampler) {
  const std::string rest = " --max-tokens 8 --ignore-eos --json abc";
  const Json greedy = json_of(generate(neox(), "--greedy" + rest))["token_ids"];
  EXPECT_EQ(json_of(generate(neox(), "--top-k 1" + rest))["token_ids"], greedy);
  EXPECT_EQ(json_of(generate(neox(), "--temperature 0" + rest))["token_ids"], greedy);
  EXPECT_EQ(json_of(generate(neox(), "--top-p 0.0001" + rest))["token_ids"], greedy);
  EXPECT_EQ(json_of(generate(neox(), "--min-p 1" + rest))["token_ids"], greedy);
  const Json biased = json_of(generate(neox(), "--greedy --logit-bias 40=1000" + rest));
  EXPECT_EQ(biased["token_ids"], Json(std::vector<int>(8, 40)));
  const Json varied = json_of(generate(
      neox(), "--greedy --logit-bias 40=20 --logit-bias 41=19 --frequency-penalty 5" + rest));
  EXPECT_EQ(varied["token_ids"][0], 40);
  EXPECT_EQ(varied["token_ids"][1], 41);
}

TEST(Generate, LogprobsWhereAskedFor) {
  const Json json =
      json_of(generate(neox(), "--greedy --ignore-eos --max-tokens 3 --logprobs 2 --json abc"));
  ASSERT_EQ(json["logprobs"].size(), 3u);
  const Json& first = json["logprobs"][0];
  EXPECT_EQ(first["id"], json["token_ids"][0]);
  EXPECT_EQ(first["top"].size(), 2u);
  EXPECT_EQ(first["top"][0]["id"], first["id"]);
  EXPECT_LE(first["logprob"].get<double>(), 0.0);
}

TEST(Generate, PacksWeightsWhileLoading) {
  for (const std::string format : {"int4", "nvfp4", "int8"}) {
    const Json json =
        json_of(generate(neox(), "--greedy --max-tokens 4 --json abc --weights " + format));
    EXPECT_EQ(json["weights"], format);
    EXPECT_EQ(json["activations"], "int8");
  }
}

TEST(Generate, StreamsPastTheContextWithAttentionSinks) {
  const std::string rest = " --greedy --ignore-eos --max-tokens 400 --json abc";
  const Json full = json_of(generate(neox(), rest));
  EXPECT_EQ(full["stop_reason"], "context_full");
  for (const std::string cache : {"--attention-sinks 4 --window 60", "--window 64"}) {
    const Json json = json_of(generate(neox(), cache + rest));
    EXPECT_EQ(json["stop_reason"], "max_tokens");
    EXPECT_EQ(json["token_ids"].size(), 400u);
  }
  EXPECT_EQ(json_of(generate(neox(), "--attention-sinks 4" + rest))["cache"], "sinks(4, 252)");
}

TEST(Generate, NotesACacheBeyondTheTrainedLength) {
  const struct {
    std::string cache, expected;  // empty: no note is expected
  } cases[] = {
      {"--attention-sinks 4 --window 1020",
       "--attention-sinks 4 --window 1020 lets the model see 1024 tokens at once, but it was "
       "trained for 256: longer texts turn into nonsense; the largest sensible window is 252 "
       "(--attention-sinks 4 --window 252)"},
      {"--attention-sinks 300 --window 8", "use --attention-sinks 4 --window 252 for a stream of"},
      {"--window 257",
       "trained for 256: longer texts turn into nonsense; the largest sensible "
       "window is 256 (--window 256)"},
      {"--context 512",
       "the largest sensible context is 256; use --attention-sinks 4 --window 252"},
      {"--attention-sinks 4 --window 252", ""},
      {"--window 256", ""},
      {"--context 256", ""},
      {"", ""},
  };
  for (const auto& c : cases) {
    const ProgramRun outcome = generate(neox(), c.cache + " --max-tokens 2 --json abc");
    const Json notes = json_of(outcome)["notes"];
    EXPECT_EQ(notes.size(), c.expected.empty() ? 0u : 1u) << c.cache << "\n" << notes;
    EXPECT_EQ(outcome.err.find("note: ") != std::string::npos, !c.expected.empty()) << outcome.err;
    if (c.expected.empty()) continue;
    EXPECT_NE(notes[0].get<std::string>().find(c.expected), std::string::npos) << notes;
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << outcome.err;
  }
  // This model has its own sliding window in every layer, so no distance is ever longer.
  const ModelFolder sliding("mistral-window", TinyVocabulary::printable);
  const ProgramRun outcome = generate(sliding, "--window 600 --max-tokens 2 --json abc");
  EXPECT_EQ(json_of(outcome)["notes"], Json::array()) << outcome.err;
}

TEST(Generate, RepeatableOptionsTakeOneValueEach) {
  for (const std::string options :
       {"--stop END", "--logit-bias 5=1", "--weights int4 --keep-dense '*mlp*'",
        "--stop END --stop '[a,b]'", "--logit-bias 5=1 --logit-bias 6=1"}) {
    const ProgramRun outcome = generate(neox(), "--max-tokens 1 --json " + options + " abc");
    EXPECT_EQ(json_of(outcome)["prompt_ids"].size(), 3u) << options;
  }
}

TEST(Generate, TheBosTokenGoesInFrontWhereTheTokenizerSaysSo) {
  const auto prompt_ids = [](const ModelFolder& folder, const std::string& prompt) {
    return json_of(generate(folder, "--max-tokens 1 --json " + prompt))["prompt_ids"];
  };
  const ModelFolder with_bos("neox-serial-untied", TinyVocabulary::printable, true);
  EXPECT_EQ(prompt_ids(with_bos, "a"), Json({0, 66}));
  EXPECT_EQ(prompt_ids(with_bos, "'<|endoftext|>a'"), Json({0, 66}));
  EXPECT_EQ(prompt_ids(with_bos, "--prompt-ids 66"), Json({66}));
  with_bos.write("tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_EQ(prompt_ids(with_bos, "a"), Json({66}));
  const ModelFolder without("neox-serial-untied", TinyVocabulary::printable);
  EXPECT_EQ(prompt_ids(without, "a"), Json({66}));
  without.write("tokenizer_config.json",
                R"({"add_bos_token": true, "bos_token": {"content": "<|endoftext|>"}})");
  EXPECT_EQ(prompt_ids(without, "a"), Json({0, 66}));
}

TEST(Generate, WithoutATokenizerIdsGoInAndComeOut) {
  const ModelFolder folder("neox-serial-untied", TinyVocabulary::printable);
  std::filesystem::remove(folder.path() / "tokenizer.json");
  const ProgramRun outcome =
      generate(folder, "--prompt-ids 5,6 --greedy --ignore-eos --max-tokens 3");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), ' '), 3) << outcome.out;
  EXPECT_NE(generate(folder, "abc").err.find("has no tokenizer.json"), std::string::npos);
}

TEST(Generate, CtrlCEndsItCleanlyWithTheSummary) {
  const ProgramRun outcome = interrupt_program(
      TESSERA_PROGRAM, "generate --threads 1" + neox().option() +
                           "--ignore-eos --window 64 --max-tokens -1 --temperature 2 abc");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_NE(outcome.err.find("(cancelled): first "), std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with('\n'));
}

TEST(Generate, WithoutAModelTheDefaultOneIsUsed) {
  const std::string variable = "TESSERA_DEFAULT_MODEL='" + neox().path().string() + "' ";
  const std::string program = std::string("'") + TESSERA_PROGRAM + "'";
  const ProgramRun outcome =
      run_program("/usr/bin/env", variable + program + " generate --greedy --max-tokens 2 abc");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const ProgramRun wrong =
      run_program("/usr/bin/env", "TESSERA_DEFAULT_MODEL=/nowhere " + program + " generate abc");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("TESSERA_DEFAULT_MODEL is '/nowhere'"), std::string::npos) << wrong.err;
}

TEST(Generate, TheBundledModelWritesAStory) {
  const ProgramRun run =
      run_program("/usr/bin/env", std::string("-u TESSERA_DEFAULT_MODEL '") + TESSERA_PROGRAM +
                                      "' generate --greedy --max-tokens 12 --json 'Once upon'");
  const Json json = json_of(run);
  EXPECT_TRUE(json["text"].get<std::string>().starts_with(" a time, there was a little"))
      << json["text"];
  EXPECT_EQ(json["prompt_ids"][0], 0);  // its tokenizer puts <|begin|> in front
}

}  // namespace
}  // namespace tessera::test
