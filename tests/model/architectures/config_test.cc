// config.json as in published checkpoints, with every generation of keys, and what is refused.
#include "model/architectures/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/model.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

using model::Json;
using model::parse_model_config;

// A small model of a family. Changes given to parse() replace or add keys; null removes nothing.
Json small(const std::string& model_type, const std::string& architecture) {
  return {{"model_type", model_type}, {"architectures", {architecture}}, {"hidden_size", 64},
          {"num_hidden_layers", 4},   {"num_attention_heads", 8},        {"intermediate_size", 128},
          {"vocab_size", 100}};
}
Json neox() { return small("gpt_neox", "GPTNeoXForCausalLM"); }
Json llama() { return small("llama", "LlamaForCausalLM"); }
Json mistral() { return small("mistral", "MistralForCausalLM"); }
Json qwen2() {
  Json json = small("qwen2", "Qwen2ForCausalLM");
  json["num_key_value_heads"] = 2;
  return json;
}
Json qwen3() {
  Json json = small("qwen3", "Qwen3ForCausalLM");
  json["num_key_value_heads"] = 2;
  return json;
}

ModelConfig parse(Json json, const Json& changes = Json::object()) {
  json.update(changes);
  return parse_model_config(json.dump(), "config.json");
}

testing::AssertionResult refused(const Json& json, const Json& changes, const std::string& text) {
  return refuses([&] { parse(json, changes); }, "config.json" + text, ErrorCode::file);
}

constexpr const char* kSupported =
    "supported: gpt_neox (GPTNeoXForCausalLM), llama (LlamaForCausalLM), mistral "
    "(MistralForCausalLM), qwen2 (Qwen2ForCausalLM), qwen3 (Qwen3ForCausalLM)";

// ---- missing keys mean what transformers assumes ------------------------------------------------

TEST(ModelConfig, MissingKeysOfGptNeox) {
  const ModelConfig config = parse(neox());
  EXPECT_EQ(config.architecture, "gpt_neox");
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.activation, Activation::gelu);
  EXPECT_TRUE(config.parallel_residual && config.qkv_bias && config.output_bias && config.mlp_bias);
  EXPECT_FALSE(config.tied_head || config.qk_norm);
  EXPECT_EQ(config.rope.dims, 2);  // a quarter
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_EQ(config.bos, 0);
  EXPECT_EQ(config.eos, std::vector<std::int64_t>{2});
}

TEST(ModelConfig, MissingKeysOfTheLlamaFamily) {
  const ModelConfig config = parse(llama());
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.tied_head);
  EXPECT_EQ(config.rope.dims, 8);
  EXPECT_EQ(config.windows, std::vector<std::int64_t>(4, 0));
  EXPECT_EQ(config.bos, 1);
  EXPECT_EQ(config.eos, std::vector<std::int64_t>{2});

  EXPECT_EQ(parse(mistral()).kv_heads, 8);
  EXPECT_EQ(parse(mistral(), {{"num_attention_heads", 32}}).kv_heads, 8);
  EXPECT_EQ(
      parse(mistral(), {{"num_key_value_heads", nullptr}, {"num_attention_heads", 4}}).kv_heads, 4);
  EXPECT_EQ(parse(mistral()).max_positions, 131072);
  EXPECT_EQ(parse(mistral()).windows, std::vector<std::int64_t>(4, 4096));

  EXPECT_EQ(parse(qwen3()).head_dim, 128);
  EXPECT_TRUE(parse(qwen3()).qk_norm);
  EXPECT_FALSE(parse(qwen3()).qkv_bias);
  EXPECT_TRUE(parse(qwen2()).qkv_bias);
  EXPECT_FALSE(parse(qwen2()).output_bias);
  EXPECT_EQ(parse(qwen2()).head_dim, 8);
  EXPECT_EQ(parse(qwen2()).bos, -1);
  EXPECT_TRUE(parse(qwen2()).eos.empty());
}

TEST(ModelConfig, ModelTypeOrArchitecturesAloneWillDo) {
  Json json = llama();
  json.erase("architectures");
  EXPECT_EQ(parse(json).architecture, "llama");
  json = qwen2();
  json.erase("model_type");
  EXPECT_EQ(parse(json).architecture, "qwen2");
}

// ---- rotary embedding ---------------------------------------------------------------------------

TEST(ModelConfig, RotaryKeysOldAndNew) {
  EXPECT_EQ(parse(neox(), {{"rotary_pct", 1.0}, {"rotary_emb_base", 5000}}).rope.dims, 8);
  EXPECT_EQ(parse(neox(), {{"rotary_pct", 1.0}, {"rotary_emb_base", 5000}}).rope.theta, 5000);
  EXPECT_EQ(parse(neox(), {{"partial_rotary_factor", 0.5}, {"rope_theta", 7}}).rope.dims, 4);
  EXPECT_EQ(parse(neox(), {{"partial_rotary_factor", 0.5}, {"rope_theta", 7}}).rope.theta, 7);
  // The new object takes precedence over old keys beside it.
  const Json both = {
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 3.0}, {"partial_rotary_factor", 0.5}}},
      {"rotary_pct", 1.0},
      {"rotary_emb_base", 5000}};
  EXPECT_EQ(parse(neox(), both).rope.dims, 4);
  EXPECT_EQ(parse(neox(), both).rope.theta, 3);
  EXPECT_EQ(parse(llama(), {{"rope_theta", 500000.0}}).rope.theta, 500000);
  EXPECT_EQ(parse(llama(), {{"rope_theta", 500000.0}, {"rope_parameters", {{"rope_theta", 9}}}})
                .rope.theta,
            9);
  EXPECT_EQ(parse(llama(), {{"rope_scaling", nullptr}}).rope.scaling, RopeScaling::none);
  EXPECT_EQ(parse(llama(), {{"rope_scaling", Json::object()}}).rope.scaling, RopeScaling::none);
}

TEST(ModelConfig, RopeScaling) {
  for (const char* type : {"type", "rope_type"}) {  // old and new
    const RopeConfig rope =
        parse(llama(), {{"rope_scaling", {{type, "linear"}, {"factor", 4}}}, {"rope_theta", 99}})
            .rope;
    EXPECT_EQ(rope.scaling, RopeScaling::linear);
    EXPECT_EQ(rope.factor, 4);
    EXPECT_EQ(rope.theta, 99);
  }
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const RopeConfig rope = parse(llama(), {{"rope_scaling", llama3}}).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(rope.original_max_positions, 8192);
  Json without = llama3;
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(parse(llama(), {{"rope_scaling", without}, {"max_position_embeddings", 77}})
                .rope.original_max_positions,
            77);
}

TEST(RopeFrequencies, MatchFloat64) {
  for (const RopeScaling scaling : {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3}) {
    const RopeConfig rope{.dims = 128,
                          .theta = 500000,
                          .scaling = scaling,
                          .factor = 8,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4,
                          .original_max_positions = 8192};
    const std::vector<float> actual = rope_frequencies(rope);
    Array values({64});
    std::copy(actual.begin(), actual.end(), values.data.begin());
    EXPECT_TRUE(close(values, reference::rope_frequencies(rope), 5e-7, 0));
  }
}

// ---- windows ------------------------------------------------------------------------------------

TEST(ModelConfig, SlidingWindows) {
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(parse(mistral(), {{"sliding_window", 8}}).windows, (Windows{8, 8, 8, 8}));
  EXPECT_EQ(parse(mistral(), {{"sliding_window", nullptr}}).windows, (Windows{0, 0, 0, 0}));
  const Json on = {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 3}};
  EXPECT_EQ(parse(qwen2(), on).windows, (Windows{0, 0, 0, 16}));
  EXPECT_EQ(parse(qwen2(), {{"sliding_window", 16}, {"max_window_layers", 3}}).windows,
            (Windows{0, 0, 0, 0}));  // use_sliding_window is false by default
  EXPECT_EQ(parse(qwen3(), {{"use_sliding_window", true}, {"max_window_layers", 0}}).windows,
            (Windows{4096, 4096, 4096, 4096}));
  Json types = on;
  types["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                          "sliding_attention"};
  EXPECT_EQ(parse(qwen2(), types).windows, (Windows{16, 0, 0, 16}));
}

// ---- the rest -----------------------------------------------------------------------------------

TEST(ModelConfig, Activations) {
  const auto activation = [](const char* name) {
    return parse(neox(), {{"hidden_act", name}}).activation;
  };
  EXPECT_EQ(activation("gelu"), Activation::gelu);
  EXPECT_EQ(activation("gelu_new"), Activation::gelu_tanh);
  EXPECT_EQ(activation("gelu_fast"), Activation::gelu_tanh);
  EXPECT_EQ(activation("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(activation("silu"), Activation::silu);
  EXPECT_EQ(activation("swish"), Activation::silu);
  EXPECT_EQ(activation("relu"), Activation::relu);
}

TEST(ModelConfig, TokensAndDtype) {
  EXPECT_EQ(parse(llama(), {{"eos_token_id", {7, 9}}}).eos, (std::vector<std::int64_t>{7, 9}));
  EXPECT_TRUE(parse(llama(), {{"eos_token_id", nullptr}}).eos.empty());
  EXPECT_EQ(parse(llama(), {{"bos_token_id", nullptr}}).bos, -1);
  EXPECT_EQ(parse(llama(), {{"torch_dtype", "bfloat16"}}).stored_dtype, DType::bf16);
  EXPECT_EQ(parse(llama(), {{"dtype", "float16"}}).stored_dtype, DType::f16);

  TemporaryFolder folder;
  write_text(folder.path() / "config.json", llama().dump());
  EXPECT_EQ(read_model_config(folder.path()).eos, (std::vector<std::int64_t>{2}));
  write_text(folder.path() / "generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(read_model_config(folder.path()).eos, (std::vector<std::int64_t>{3, 4}));
}

TEST(ModelConfig, RefusesArchitecturesByName) {
  EXPECT_TRUE(
      refused(llama(), {{"model_type", "gemma2"}, {"architectures", {"Gemma2ForCausalLM"}}},
              std::string(": architecture \"Gemma2ForCausalLM\" (model_type \"gemma2\") is not "
                          "supported; ") +
                  kSupported));
  EXPECT_TRUE(refused(llama(), {{"architectures", {"LlamaForSequenceClassification"}}},
                      std::string(": architecture \"LlamaForSequenceClassification\" (model_type "
                                  "\"llama\") is not supported; ") +
                          kSupported));
  EXPECT_TRUE(
      refused({{"hidden_size", 3}}, Json::object(),
              std::string(": there is neither model_type nor architectures; ") + kSupported));
}

TEST(ModelConfig, RefusesOptionsByName) {
  EXPECT_TRUE(refused(llama(), {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}},
                      ", rope_scaling: rope type \"yarn\" is not supported; supported: default, "
                      "linear, llama3"));
  EXPECT_TRUE(refused(llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}}},
                      ", rope_scaling: rope type \"dynamic\" is not supported; supported: default, "
                      "linear, llama3"));
  EXPECT_TRUE(refused(llama(), {{"rope_scaling", {{"type", "linear"}}}},
                      ", rope_scaling: rope type linear needs the key factor"));
  EXPECT_TRUE(refused(
      llama(), {{"hidden_act", "quick_gelu"}},
      ": hidden_act \"quick_gelu\" is not supported; supported: gelu, gelu_python, gelu_new, "
      "gelu_fast, gelu_pytorch_tanh, gelu_python_tanh, gelu_accurate, silu, swish, relu, linear"));
  EXPECT_TRUE(refused(llama(), {{"final_logit_softcapping", 30.0}},
                      ": final_logit_softcapping is 30.0, an option that is not supported for "
                      "llama; leave it out"));
  EXPECT_TRUE(refused(llama(), {{"num_local_experts", 8}},
                      ": num_local_experts is 8, an option that is not supported for llama; leave "
                      "it out"));
  EXPECT_TRUE(refused(llama(), {{"partial_rotary_factor", 0.5}},
                      ": partial_rotary_factor is 0.5, but llama rotates whole heads; leave it "
                      "out"));
  EXPECT_TRUE(refused(llama(), {{"sliding_window", 64}},
                      ": sliding_window is 64, an option that is not supported for llama (mistral, "
                      "qwen2, qwen3 have it); leave it out"));
  EXPECT_TRUE(
      refused(qwen2(), {{"layer_types", {"a", "b", "c", "d"}}},
              ": layer_types[0] is \"a\", which is not supported; supported: full_attention, "
              "sliding_attention"));
  EXPECT_TRUE(refused(qwen2(), {{"layer_types", {"full_attention"}}},
                      ": layer_types names 1 layers, but num_hidden_layers is 4"));
  EXPECT_TRUE(
      refused(llama(), {{"dtype", "float64"}},
              ": dtype \"float64\" is not supported; supported: float32, float16, bfloat16"));
}

TEST(ModelConfig, RefusesSizesThatDoNotFit) {
  EXPECT_TRUE(refused(llama(), {{"num_key_value_heads", 3}},
                      ": 3 key/value heads do not divide 8 query heads"));
  EXPECT_TRUE(refused(llama(), {{"num_attention_heads", 7}},
                      ": 7 heads do not divide a hidden_size of 64, and head_dim is not given"));
  EXPECT_TRUE(refused(neox(), {{"head_dim", 16}},
                      ": head_dim is 16; in gpt_neox it is hidden_size / num_attention_heads = 8"));
  EXPECT_TRUE(refused(neox(), {{"rotary_pct", 0.2}},
                      ": 1 of 8 elements of a head are to be rotated; an even number from 2 on is "
                      "accepted"));
  EXPECT_TRUE(refused(neox(), {{"rotary_pct", 1.5}},
                      ": 1.5 of each head is to be rotated; at most 1 (all of it) is accepted"));
  EXPECT_TRUE(
      refused(llama(), {{"rope_theta", -1}}, ": rope_theta is -1; it must be a positive number"));
  EXPECT_TRUE(refused(llama(), {{"rms_norm_eps", 2}},
                      ": rms_norm_eps is 2; a number from 0 to below 1 is accepted"));
  EXPECT_TRUE(refused(llama(), {{"eos_token_id", "x"}},
                      ": eos_token_id must be a token id or a list of them"));
  EXPECT_THROW(parse(llama(), {{"num_hidden_layers", 0}}), Error);
  EXPECT_THROW(parse(llama(), {{"hidden_size", 1e18}}), Error);
}

}  // namespace
}  // namespace tessera::test
