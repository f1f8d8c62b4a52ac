// tessera verify as a user runs it: what is right passes, what is wrong fails and says where.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "support/changed_checkpoint.h"
#include "support/devices.h"
#include "support/files.h"

namespace tessera::test {
namespace {

Outcome verify(const std::string& arguments) {
  return run("verify --device cpu --threads 2 " + arguments);
}

std::string folder_of(const std::string& name) { return data_path("goldens/" + name).string(); }

std::string with_golden(const std::string& model, const std::string& golden) {
  return "--model " + model + " --golden " + golden;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Verify, AGoodGoldenPasses) {
  for (const char* name : {"neox-parallel", "llama-gqa", "llama-nvfp4", "llama-int4"}) {
    const std::string folder = folder_of(name);
    const Outcome outcome = verify(with_golden(folder, folder + "/golden.safetensors"));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "24 of 24 identical")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "all checks hold")) << outcome.output;
    EXPECT_EQ(contains(outcome.output, "decoded weights"),
              std::string(name) == "llama-nvfp4" || std::string(name) == "llama-int4");
  }
}

TEST(Verify, JsonHasEveryLevel) {
  const std::string folder = folder_of("llama-gqa");
  const Outcome outcome = verify(with_golden(folder, folder + "/golden.safetensors") + " --json");
  EXPECT_EQ(outcome.status, 0);
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["architecture"], "llama");
  const auto& rows = json["checks"][0]["rows"];
  ASSERT_EQ(rows.size(), 3u + 1 + 1);  // embedding, layers, logits
  EXPECT_EQ(rows[0]["what"], "embedding");
  EXPECT_EQ(rows[4]["what"], "logits");
  for (const auto& row : rows) EXPECT_LT(row["max_rel"], 1e-4);
}

TEST(Verify, AChangedTokenFails) {
  const std::string folder = folder_of("neox-serial");
  TemporaryFolder temporary;
  EditableFile golden = read_editable(folder + "/golden.safetensors");
  std::int64_t& token = golden.at("generated_ids").at<std::int64_t>(20);
  token = (token + 1) % 320;
  golden.write(temporary.path() / "golden.safetensors");
  const Outcome outcome =
      verify(with_golden(folder, (temporary.path() / "golden.safetensors").string()));
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "23 of 24 identical; token 20 is")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "1 of 2 checks miss")) << outcome.output;
}

TEST(Verify, AChangedWeightFailsFromItsLayerOn) {
  TemporaryFolder temporary;
  const std::string folder = folder_of("llama-gqa");
  copy_checkpoint(folder, temporary.path());
  EditableFile weights = read_editable(folder + "/model.safetensors");
  weights.at("model.layers.1.mlp.down_proj.weight").at<float>(5) += 0.5f;
  weights.write(temporary.path() / "model.safetensors");
  const Outcome outcome =
      verify(with_golden(temporary.path().string(), folder + "/golden.safetensors") + " --json");
  EXPECT_EQ(outcome.status, 1);
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["ok"], false);
  const auto& rows = json["checks"][0]["rows"];
  EXPECT_EQ(rows[1]["ok"], true);   // layer 1
  EXPECT_EQ(rows[2]["ok"], false);  // layer 2
}

TEST(Verify, ChecksAnyModelAgainstFloat64) {
  for (const char* arguments :
       {"neox-serial", "qwen3 --weights nvfp4", "mistral-window --dtype f16",
        "llama-nvfp4 --activations int8", "neox-serial --weights int8 --keep-dense embed_out",
        "llama-biases-tied --weights int4 --activations int8"}) {
    const Outcome outcome =
        verify("--json --model " + data_path("goldens").string() + "/" + arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json["ok"], true);
    EXPECT_EQ(json["notes"].size(), 0u) << json["notes"];
    std::vector<std::string> names;
    for (const auto& check : json["checks"]) names.push_back(check["name"]);
    std::vector<std::string> expected{"kernels", "hidden states", "greedy tokens", "fused calls",
                                      "time per output token"};
    if (contains(arguments, "f16") || contains(arguments, "--activations int8")) {
      expected.insert(expected.begin() + 3, {"states, CPU in f32", "tokens, CPU in f32"});
    }
    EXPECT_EQ(names, expected) << arguments;
  }
}

TEST(Verify, NotesThatWeightsDoNotApplyToAPackedCheckpoint) {
  const Outcome outcome = verify("--json --weights int4 --model " + folder_of("llama-nvfp4"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "already packed as nvfp4; --weights int4 applies only to"))
      << outcome.output;
}

TEST(Verify, LessThanF32IsAlsoHeldToTheCpuInF32) {
  const Outcome outcome = verify("--json --dtype bf16 --model " + folder_of("neox-parallel"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const auto checks = nlohmann::json::parse(outcome.output)["checks"];
  const auto &by_float64 = checks[1]["rows"], &by_cpu = checks[3]["rows"];
  ASSERT_EQ(checks[3]["name"], "states, CPU in f32");
  ASSERT_EQ(by_cpu.size(), by_float64.size());
  for (std::size_t i = 0; i < by_cpu.size(); ++i) {
    EXPECT_EQ(by_cpu[i]["what"], by_float64[i]["what"]);
    // f32 is so close to float64 that both see the same error, but not the same number.
    const double distance = by_cpu[i]["max_abs"], expected = by_float64[i]["max_abs"];
    if (i > 0) {
      EXPECT_NE(distance, expected);
    }
    EXPECT_NEAR(distance, expected, 1e-2 * expected);
  }
  EXPECT_EQ(checks[4]["name"], "tokens, CPU in f32");
}

class VerifyOn : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, VerifyOn, testing::ValuesIn(test_devices()), device_name);

TEST_P(VerifyOn, EveryDtypeHoldsOnTheDeviceThatIsAskedFor) {
  const std::string device = GetParam().is_cpu() ? "cpu" : "cuda";
  for (const std::string dtype : {"f32", "f16", "bf16"}) {
    const Outcome outcome = run("verify --json --device " + device + " --dtype " + dtype +
                                " --weights nvfp4 --model " + folder_of("llama-gqa"));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(json["dtype"], dtype);
    EXPECT_EQ(json["checks"].size(), device == "cpu" && dtype == "f32" ? 5u : 7u);
    for (const auto& entry : json["trace"]) {
      EXPECT_EQ(entry["kernel"].get<std::string>().find(device), 0u) << entry;
    }
  }
}

// A GPT-NeoX that a GPU decodes in one kernel: its sizes are multiples of what that kernel reads.
void write_neox(const std::filesystem::path& folder) {
  constexpr std::int64_t kHidden = 256, kInner = 512, kVocab = 320, kLayers = 2;
  write_text(folder / "config.json", nlohmann::json{{"model_type", "gpt_neox"},
                                                    {"architectures", {"GPTNeoXForCausalLM"}},
                                                    {"hidden_size", kHidden},
                                                    {"num_hidden_layers", kLayers},
                                                    {"num_attention_heads", 4},
                                                    {"intermediate_size", kInner},
                                                    {"max_position_embeddings", 128},
                                                    {"vocab_size", kVocab}}
                                         .dump());
  EditableFile weights;
  std::mt19937 random(1);
  // Normal(mean, scale).
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float mean,
                       float scale) {
    weights.add(name, "F32", std::move(shape), 4);
    EditableTensor& tensor = weights.tensors.back();
    std::normal_distribution<float> normal(mean, scale);
    for (std::size_t i = 0; i < tensor.data.size() / 4; ++i) tensor.at<float>(i) = normal(random);
  };
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {kHidden}, 1.f, 0.1f);
    add(name + ".bias", {kHidden}, 0.f, 0.1f);
  };
  const auto add_dense = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in}, 0.f, 0.06f);
    add(name + ".bias", {out}, 0.f, 0.1f);
  };
  add("gpt_neox.embed_in.weight", {kVocab, kHidden}, 0.f, 1.f);
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "gpt_neox.layers." + std::to_string(i);
    add_norm(layer + ".input_layernorm");
    add_norm(layer + ".post_attention_layernorm");
    add_dense(layer + ".attention.query_key_value", 3 * kHidden, kHidden);
    add_dense(layer + ".attention.dense", kHidden, kHidden);
    add_dense(layer + ".mlp.dense_h_to_4h", kInner, kHidden);
    add_dense(layer + ".mlp.dense_4h_to_h", kHidden, kInner);
  }
  add_norm("gpt_neox.final_layer_norm");
  add("embed_out.weight", {kVocab, kHidden}, 0.f, 0.1f);
  weights.write(folder / "model.safetensors");
}

// --fusion off runs the layers op by op, and both ways hold.
TEST_P(VerifyOn, FusionIsOnUnlessItIsTurnedOff) {
  const std::string device = GetParam().is_cpu() ? "cpu" : "cuda";
  TemporaryFolder temporary;
  write_neox(temporary.path());
  for (const std::string fusion : {"on", "off"}) {
    const Outcome outcome = run("verify --json --dtype f16 --device " + device + " --fusion " +
                                fusion + " --model " + temporary.path().string());
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::map<std::string, int> calls;
    const auto json = nlohmann::json::parse(outcome.output);
    for (const auto& entry : json["trace"]) calls[entry["op"]] += entry["calls"].get<int>();
    const bool fused = fusion == "on" && device == "cuda";
    EXPECT_EQ(calls["decode_layers"], fused ? 1 : 0) << fusion;
    EXPECT_EQ(calls["append_attention"], fused ? 0 : 2) << fusion;  // one for each layer
    EXPECT_EQ(calls["embedding"], fused ? 1 : 2) << fusion;         // of the prompt, of the token
    EXPECT_EQ(calls["layer_norm"], fused ? 5 : 10) << fusion;
  }
}

// The call of all layers takes no packed table: embedding() decodes the token's row.
TEST_P(VerifyOn, APackedEmbeddingIsReadBeforeTheLayers) {
  const std::string device = GetParam().is_cpu() ? "cpu" : "cuda";
  TemporaryFolder temporary;
  const std::filesystem::path dense = temporary.path() / "dense",
                              packed = temporary.path() / "packed";
  std::filesystem::create_directory(dense);
  write_neox(dense);
  const Outcome quantized = run("quantize --format nvfp4 --pack-embedding --model " +
                                dense.string() + " --out " + packed.string());
  ASSERT_EQ(quantized.status, 0) << quantized.output;
  const Outcome outcome =
      run("verify --json --dtype f16 --device " + device + " --model " + packed.string());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::map<std::string, int> calls;
  const auto json = nlohmann::json::parse(outcome.output);
  for (const auto& entry : json["trace"]) calls[entry["op"]] += entry["calls"].get<int>();
  const bool fused = device == "cuda";
  EXPECT_EQ(calls["decode_layers"], fused ? 1 : 0);
  EXPECT_EQ(calls["embedding"], 2);
  EXPECT_EQ(calls["layer_norm"], fused ? 5 : 10);
}

TEST(Verify, ShowsEveryCall) {
  const std::string folder = folder_of("neox-parallel");
  const std::string golden = with_golden(folder, folder + "/golden.safetensors");
  for (const std::string& arguments : {"--model " + folder, golden}) {
    const Outcome outcome = verify(arguments);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(contains(outcome.output, "call trace: a prompt of 24 tokens and one more token"))
        << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "cpu.decode")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "x f32[1, 64] weight f32[192, 64]")) << outcome.output;
  }
  const auto trace = nlohmann::json::parse(verify(golden + " --json").output)["trace"];
  std::map<std::string, int> calls;
  for (const auto& entry : trace) {
    calls[entry["op"]] += entry["calls"].get<int>();
    EXPECT_GT(entry["seconds"], 0.0);
    EXPECT_GT(entry["bytes"], 0);
  }
  // Three layers, a prompt and one more token.
  EXPECT_EQ(calls, (std::map<std::string, int>{{"append_attention", 3},
                                               {"attention", 3},
                                               {"embedding", 2},
                                               {"layer_norm", 14},
                                               {"linear", 26},
                                               {"rotary_append", 3}}));
}

TEST(Verify, TakesTheDefaultModelWhereNoneIsNamed) {
  ASSERT_EQ(setenv("TESSERA_DEFAULT_MODEL", folder_of("neox-parallel").c_str(), 1), 0);
  const Outcome outcome = verify("--json");
  unsetenv("TESSERA_DEFAULT_MODEL");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(nlohmann::json::parse(outcome.output)["model"], folder_of("neox-parallel"));
}

TEST(Verify, BadInputIsRefusedWithASentence) {
  const std::string folder = folder_of("llama-gqa");
  const std::pair<std::string, std::string> cases[] = {
      {"--model nowhere", "nowhere"},
      {with_golden(folder, "nothing.safetensors"), "nothing.safetensors"},
      {with_golden(folder, folder_of("qwen3") + "/golden.safetensors"),
       "is not a golden of this model: it has 3 hidden states, but the model has 3 layers"},
      {with_golden(folder, folder + "/model.safetensors"), "there is no tensor input_ids"},
      {"--model " + folder + " --dtype f64", "--dtype"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = verify(arguments);
    EXPECT_NE(outcome.status, 0) << arguments;
    EXPECT_TRUE(contains(outcome.output, expected)) << outcome.output;
  }
}

}  // namespace
}  // namespace tessera::test
