// What quantization_config says: which layers are packed, how, and what is refused.
#include "model/checkpoint/quant_config.h"

#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::test {
namespace {

using model::Json;
using model::PackedScheme;
using model::parse_quant_config;
using model::QuantConfig;
using model::ScaleOf;

// A compressed-tensors config with one group of Linear layers.
Json one_group(const std::string& format, const Json& weights) {
  return Json::parse(R"({"quantization_config": {
    "quant_method": "compressed-tensors", "quantization_status": "compressed",
    "ignore": ["lm_head"], "kv_cache_scheme": null, "sparsity_config": {}, "transform_config": {}}})")
      .patch(Json::array(
          {{{"op", "add"}, {"path", "/quantization_config/format"}, {"value", format}},
           {{"op", "add"},
            {"path", "/quantization_config/config_groups"},
            {"value",
             {{"group_0", {{"targets", Json::array({"Linear"})}, {"weights", weights}}}}}}}));
}

const Json kInt4 = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}};

QuantConfig parse_quant(const Json& config) { return parse_quant_config(config, nullptr); }

testing::AssertionResult refuses_with(const Json& config, const std::string& part,
                                      const Json& hf_quant_config = nullptr) {
  try {
    parse_quant_config(config, hf_quant_config);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "refused with: " << text << "\nexpected: " << part;
  }
  return testing::AssertionFailure() << "was not refused; expected: " << part;
}

TEST(QuantConfig, ADenseModelHasNoTargets) {
  const QuantConfig config = parse_quant(Json::object());
  EXPECT_TRUE(config.where.empty());
  EXPECT_EQ(config.scheme_of("model.layers.0.mlp.up_proj"), nullptr);
}

TEST(QuantConfig, ReadsEveryFormatOfCompressedTensors) {
  const struct {
    const char *format, *weights;
    const char* form;
    const char* codes;
    Format weight_format;
    ScaleOf scale_of;
    std::int64_t group;
    bool zero_points;
  } cases[] = {
      {"nvfp4-pack-quantized",
       R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})",
       "nvfp4-pack-quantized", "weight_packed", Format::nvfp4, ScaleOf::group, 16, false},
      {"mxfp4-pack-quantized", R"({"num_bits": 4, "type": "float", "group_size": 32})",
       "mxfp4-pack-quantized", "weight_packed", Format::mxfp4, ScaleOf::group, 32, false},
      {"pack-quantized",
       R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": false})",
       "pack-quantized", "weight_packed", Format::int4, ScaleOf::group, 64, true},
      {"pack-quantized", R"({"num_bits": 8, "strategy": "channel", "actorder": "weight"})",
       "pack-quantized", "weight_packed", Format::int8, ScaleOf::row, 0, false},
      {"int-quantized", R"({"num_bits": 8, "type": "int", "strategy": "tensor"})", "int-quantized",
       "weight", Format::int8, ScaleOf::tensor, 0, false},
      {"naive-quantized", R"({"group_size": -1, "symmetric": false, "actorder": null})",
       "int-quantized", "weight", Format::int8, ScaleOf::row, 0, true},
      {"float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "channel"})",
       "float-quantized", "weight", Format::fp8, ScaleOf::row, 0, false},
      {"naive-quantized", R"({"num_bits": 8, "type": "float"})", "float-quantized", "weight",
       Format::fp8, ScaleOf::tensor, 0, false},
  };
  for (const auto& c : cases) {
    const QuantConfig config = parse_quant(one_group(c.format, Json::parse(c.weights)));
    const PackedScheme* scheme = config.scheme_of("model.layers.0.mlp.up_proj");
    ASSERT_NE(scheme, nullptr) << c.format;
    EXPECT_EQ(scheme->form->name, c.form) << c.format;
    EXPECT_EQ(scheme->form->codes, c.codes) << c.format;
    EXPECT_EQ(scheme->format, c.weight_format) << c.format;
    EXPECT_EQ(scheme->scale_of, c.scale_of) << c.format;
    EXPECT_EQ(scheme->group, c.group) << c.format;
    EXPECT_EQ(scheme->zero_points, c.zero_points) << c.format;
    EXPECT_EQ(scheme->name, c.format);
    EXPECT_EQ(config.scheme_of("lm_head"), nullptr);
    EXPECT_TRUE(config.notes.empty());
  }
}

TEST(QuantConfig, AnExactNameGoesBeforeAnExpressionAndThatBeforeAClass) {
  Json config = one_group("mixed-precision", kInt4);
  Json& groups = config["quantization_config"]["config_groups"];
  groups["group_0"]["format"] = "pack-quantized";
  const auto add = [&](const char* key, const char* target, int group) {
    groups[key] = groups["group_0"];
    groups[key]["targets"] = Json::array({target});
    groups[key]["weights"]["group_size"] = group;
  };
  add("group_1", "re:.*mlp\\.up", 32);
  add("group_2", "model.layers.1.mlp.up_proj", 64);
  add("group_3", "Embedding", 16);
  const QuantConfig parsed = parse_quant(config);
  const auto group_of = [&](const char* module) { return parsed.scheme_of(module)->group; };
  EXPECT_EQ(group_of("model.layers.0.self_attn.q_proj"), 128);
  EXPECT_EQ(group_of("model.layers.0.mlp.up_proj"), 32);  // anchored at the beginning only
  EXPECT_EQ(group_of("model.layers.1.mlp.up_proj"), 64);
  EXPECT_EQ(group_of("model.embed_tokens"), 16);
  EXPECT_EQ(group_of("gpt_neox.embed_in"), 16);
}

TEST(QuantConfig, IgnoresNamesAndExpressions) {
  Json config = one_group("pack-quantized", kInt4);
  config["quantization_config"]["ignore"] = {"lm_head", "re:.*layers\\.0\\..*", "re:mlp"};
  const QuantConfig parsed = parse_quant(config);
  EXPECT_EQ(parsed.scheme_of("lm_head"), nullptr);
  EXPECT_EQ(parsed.scheme_of("model.layers.0.mlp.up_proj"), nullptr);
  EXPECT_NE(parsed.scheme_of("model.layers.10.mlp.up_proj"), nullptr);  // anchored: no search
  EXPECT_NE(parsed.scheme_of("lm_head2"), nullptr);
}

TEST(QuantConfig, AGroupWithoutWeightsLeavesItsLayersDense) {
  Json config = one_group("pack-quantized", kInt4);
  config["quantization_config"]["config_groups"]["attention"] = {{"targets", {"re:.*self_attn"}},
                                                                 {"weights", nullptr}};
  EXPECT_EQ(parse_quant(config).scheme_of("model.layers.0.self_attn.q_proj"), nullptr);
}

TEST(QuantConfig, NamesEachThingThatIsNotAppliedOnce) {
  Json config = one_group("pack-quantized", kInt4);
  Json& quantization = config["quantization_config"];
  quantization["kv_cache_scheme"] = {{"num_bits", 8}};
  quantization["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8},
                                                                   {"type", "float"}};
  quantization["config_groups"]["group_1"] = quantization["config_groups"]["group_0"];
  const std::vector<std::string> expected = {
      "quantisation of the KV cache (kv_cache_scheme) is not applied",
      "activation quantisation (input_activations: 8 bits, \"float\") is not applied"};
  EXPECT_EQ(parse_quant(config).notes, expected);
}

TEST(QuantConfig, ReadsModelOptFromEitherFile) {
  const Json details = {{"quant_algo", "NVFP4"},
                        {"kv_cache_quant_algo", "FP8"},
                        {"group_size", 16},
                        {"exclude_modules", {"lm_head", "model.layers.1.*"}}};
  const QuantConfig parsed = parse_quant_config(Json::object(), {{"quantization", details}});
  const std::vector<std::string> notes = {"quantisation of the KV cache (\"FP8\") is not applied",
                                          "activation quantisation (NVFP4) is not applied"};
  EXPECT_EQ(parsed.notes, notes);
  ASSERT_NE(parsed.scheme_of("model.layers.0.mlp.up_proj"), nullptr);
  const PackedScheme& nvfp4 = *parsed.scheme_of("model.layers.0.mlp.up_proj");
  EXPECT_EQ(nvfp4.format, Format::nvfp4);
  EXPECT_EQ(nvfp4.form->tensor_scale, "weight_scale_2");
  EXPECT_EQ(parsed.scheme_of("model.layers.1.mlp.up_proj"), nullptr);
  EXPECT_EQ(parsed.scheme_of("lm_head"), nullptr);

  const QuantConfig fp8 = parse_quant(
      {{"quantization_config",
        {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"ignore", {"*lm_head"}}}}});
  EXPECT_EQ(fp8.scheme_of("q")->form->codes, "weight");
  EXPECT_EQ(fp8.scheme_of("q")->scale_of, ScaleOf::tensor);
  EXPECT_EQ(fp8.scheme_of("model.lm_head"), nullptr);
}

TEST(QuantConfig, ModelOptsMixedPrecisionIsByLayer) {
  const QuantConfig parsed =
      parse_quant({{"quantization_config",
                    {{"quant_method", "modelopt"},
                     {"quant_algo", "MIXED_PRECISION"},
                     {"quantized_layers",
                      {{"a", {{"quant_algo", "FP8"}}},
                       {"b", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}}}}}});
  EXPECT_EQ(parsed.scheme_of("a")->format, Format::fp8);
  EXPECT_EQ(parsed.scheme_of("b")->format, Format::nvfp4);
  EXPECT_EQ(parsed.scheme_of("c"), nullptr);
}

TEST(QuantConfig, RefusesOtherMethodsByNameWithTheListOfItsOwn) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "fp8", "mxfp4", "quanto"}) {
    const Json config = {{"quantization_config", {{"quant_method", method}}}};
    EXPECT_TRUE(refuses_with(config, "quantization_config: the quant_method \"" +
                                         std::string(method) +
                                         "\"; supported: compressed-tensors"));
  }
  EXPECT_TRUE(
      refuses_with({{"quantization_config", Json::object()}}, "no quant_method; supported"));
  EXPECT_TRUE(refuses_with({{"quantization_config", 3}}, "quantization_config"));
  const Json awq = {{"quantization", {{"quant_algo", "W4A16_AWQ"}}}};
  EXPECT_TRUE(refuses_with(Json::object(), "the quant_algo \"W4A16_AWQ\"; supported", awq));
}

TEST(QuantConfig, ListsWhatTheTableOfFormatsHolds) {
  EXPECT_TRUE(refuses_with(
      {{"quantization_config", Json::object()}},
      "; supported: compressed-tensors (nvfp4-pack-quantized, mxfp4-pack-quantized, pack-quantized "
      "with 4 or 8 bits, int-quantized, float-quantized), modelopt (NVFP4, W4A16_NVFP4, FP8, "
      "FP8_PER_CHANNEL_PER_TOKEN) and tessera (nf4-pack-quantized)"));
}

TEST(QuantConfig, RefusesOptionsThatItCannotReadByName) {
  const struct {
    const char *pointer, *value, *expected;
  } cases[] = {
      {"/config_groups/group_0/weights/num_bits", "3",
       "pack-quantized with 3-bit weights of type \"int\""},
      {"/config_groups/group_0/weights/type", "\"float\"",
       "pack-quantized with 4-bit weights of type \"float\""},
      {"/config_groups/group_0/weights/strategy", "\"block\"", "weights of strategy \"block\""},
      {"/config_groups/group_0/weights/group_size", "0",
       "strategy \"group\" with a group_size of 0"},
      {"/config_groups/group_0/weights/group_size", "-7", "group_size"},
      {"/config_groups/group_0/weights/actorder", "\"group\"", "actorder \"group\""},
      {"/config_groups/group_0/weights/actorder", "true", "actorder true"},
      {"/config_groups/group_0/format", "\"marlin-24\"", "the format \"marlin-24\""},
      {"/config_groups/group_0/format", "\"nf4-pack-quantized\"", "the format \"nf4-pack"},
      {"/config_groups/group_0/format", "\"nvfp4-pack-quantized\"",
       "nvfp4 with 4-bit symmetric weights of type \"int\" in groups of 128, not of 16"},
      {"/config_groups/group_0/format", "\"float-quantized\"",
       "float-quantized with 4-bit weights of type \"int\""},
      {"/config_groups/group_0/targets", "[\"re:(\"]", "\"re:(\" is not a regular expression"},
      {"/config_groups/W8A8", "[\"Linear\"]", "the preset \"W8A8\""},
      {"/config_groups", "null", "no config_groups"},
      {"/format", "null", "has a format"},
      {"/ignore", "[\"re:[\"]", "\"re:[\" is not a regular expression"},
      {"/ignore", "7", "ignore"},
      {"/sparsity_config/format", "\"sparse-24-bitmask\"",
       "sparsity of the format \"sparse-24-bitmask\""},
      {"/transform_config/config_groups", "{\"R1\": {}}", "transforms (transform_config)"},
  };
  for (const auto& c : cases) {
    Json config = one_group("pack-quantized", kInt4);
    config["quantization_config"][Json::json_pointer(c.pointer)] = Json::parse(c.value);
    EXPECT_TRUE(refuses_with(config, c.expected)) << c.pointer;
  }
}

TEST(QuantConfig, AnExpressionThatTakesForeverIsGivenUpOn) {
  Json config = one_group("pack-quantized", kInt4);
  config["quantization_config"]["ignore"] = {"re:(a+)+$"};
  const QuantConfig parsed = parse_quant(config);
  EXPECT_THROW(parsed.scheme_of(std::string(64, 'a') + "b"), Error);
}

}  // namespace
}  // namespace tessera::test
