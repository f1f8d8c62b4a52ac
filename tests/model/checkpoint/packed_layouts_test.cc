// Packed weights are read from every published layout and written back to it.
#include "model/checkpoint/packed_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/packed_writer.h"
#include "reference/test_tensor.h"
#include "support/files.h"
#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

using model::Checkpoint;
using model::Json;
using model::PackedLayouts;
using model::StoredTensor;
using model::TensorToWrite;

constexpr const char* kLayer = "model.layers.0.self_attn.k_proj";

std::vector<float> decoded(const Weight& weight) {
  Context ctx;
  std::vector<float> values(static_cast<std::size_t>(weight.out_features * weight.in_features));
  dequantize(ctx, weight,
             Tensor(values.data(), DType::f32, {weight.out_features, weight.in_features}));
  return values;
}

// ---- checkpoints written by others --------------------------------------------------------------

struct PackedFile {
  std::string name;
  std::vector<const char*> notes;
};
void PrintTo(const PackedFile& golden, std::ostream* to) { *to << golden.name; }

class PackedGolden : public testing::TestWithParam<PackedFile> {};

TEST_P(PackedGolden, DecodesToWhatItsWriterSays) {
  const auto folder = data_path("goldens/" + GetParam().name);
  const auto checkpoint = Checkpoint::open(folder);
  const std::string bytes = read_text(folder / "golden.safetensors");
  const auto golden = model::parse_safetensors(std::as_bytes(std::span(bytes)), "golden");
  const PackedLayouts layouts(*checkpoint);
  EXPECT_TRUE(layouts.any_packed());
  int compared = 0;
  for (const StoredTensor& expected : golden.tensors) {
    constexpr std::string_view kDecoded = "decoded.", kWeight = ".weight";
    if (!expected.name.starts_with(kDecoded)) continue;
    std::string module = expected.name.substr(kDecoded.size());
    if (module.ends_with(kWeight)) module.resize(module.size() - kWeight.size());
    ASSERT_TRUE(layouts.is_packed(module));
    const PackedWeight packed = layouts.read(module, expected.shape.at(0), expected.shape.at(1));
    const std::vector<float> actual = decoded(packed.weight);
    ASSERT_EQ(expected.data.size(), actual.size() * sizeof(float));
    std::vector<float> exact(actual.size());
    std::memcpy(exact.data(), expected.data.data(), expected.data.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      // nvfp4's divisor is stored as its inverse, which rounds once more than theirs.
      ASSERT_NEAR(actual[i], exact[i], 3e-7 * std::abs(exact[i])) << module << " " << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 1);
  EXPECT_EQ(layouts.notes(),
            std::vector<std::string>(GetParam().notes.begin(), GetParam().notes.end()));
}

constexpr const char* kFp8Activations =
    "activation quantisation (input_activations: 8 bits, \"float\") is not applied";

INSTANTIATE_TEST_SUITE_P(
    All, PackedGolden,
    testing::Values(
        PackedFile{"llama-nvfp4", {}}, PackedFile{"llama-int4", {}}, PackedFile{"llama-mxfp4", {}},
        PackedFile{"llama-int4-zero-points", {}}, PackedFile{"llama-int4-channel", {}},
        PackedFile{"llama-int8-group", {}}, PackedFile{"llama-int8-zero-points", {}},
        PackedFile{"llama-fp8-channel", {kFp8Activations}},
        PackedFile{"llama-fp8-tensor", {kFp8Activations}},
        PackedFile{"llama-int8-channel",
                   {"activation quantisation (input_activations: 8 bits, \"int\") is not applied"}},
        PackedFile{"llama-nvfp4-head", {}}, PackedFile{"llama-mixed-patterns", {}},
        PackedFile{"llama-modelopt-nvfp4", {"activation quantisation (NVFP4) is not applied"}},
        PackedFile{"llama-modelopt-fp8", {"activation quantisation (FP8) is not applied"}}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(PackedLayouts, PatternsDecideWhichLayersArePacked) {
  const auto checkpoint = Checkpoint::open(data_path("goldens/llama-mixed-patterns"));
  const PackedLayouts layouts(*checkpoint);
  const auto format_of = [&](const char* module, std::int64_t out, std::int64_t in) {
    return layouts.read(module, out, in).weight.format;
  };
  EXPECT_EQ(format_of("model.layers.0.self_attn.q_proj", 64, 64), Format::nvfp4);
  EXPECT_EQ(format_of("model.layers.1.self_attn.o_proj", 64, 64), Format::int4);
  EXPECT_EQ(format_of("model.layers.1.mlp.down_proj", 64, 96), Format::int4);
  EXPECT_FALSE(layouts.is_packed("model.layers.0.mlp.down_proj"));
  EXPECT_FALSE(layouts.is_packed("model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(layouts.is_packed("lm_head"));
  EXPECT_FALSE(layouts.is_packed("no.such.layer"));
}

TEST(PackedLayouts, CodesAreViewsOfTheFileWhereTheBytesAreTheSame) {
  for (const char* name : {"llama-nvfp4", "llama-int4", "llama-mxfp4", "llama-int4-zero-points",
                           "llama-fp8-tensor", "llama-int8-channel", "llama-modelopt-nvfp4"}) {
    const auto checkpoint = Checkpoint::open(data_path("goldens") / name);
    const PackedLayouts layouts(*checkpoint);
    const StoredTensor* codes = checkpoint->find(std::string(kLayer) + ".weight_packed");
    if (!codes) codes = &checkpoint->at(std::string(kLayer) + ".weight");
    const bool two_in_a_byte = codes->dtype == "U8";
    const std::int64_t in = codes->dtype == "I32" ? codes->shape[1] * 8
                            : two_in_a_byte       ? codes->shape[1] * 2
                                                  : codes->shape[1];
    const PackedWeight packed = layouts.read(kLayer, codes->shape[0], in);
    EXPECT_EQ(packed.weight.data.data, static_cast<const void*>(codes->data.data())) << name;
    EXPECT_LE(packed.storage.bytes(), 1024) << name;  // zero points or a scale for each row
  }
}

// ---- checkpoints of our own ---------------------------------------------------------------------

// A folder with these tensors and this quantization_config.
class Folder {
 public:
  Folder(const std::vector<TensorToWrite>& tensors, const Json& quantization_config) {
    Json config = {{"model_type", "llama"}};
    if (!quantization_config.is_null()) config["quantization_config"] = quantization_config;
    write_text(folder_.path() / "config.json", config.dump());
    write_safetensors(folder_.path() / "model.safetensors", tensors, {});
    checkpoint_ = Checkpoint::open(folder_.path());
  }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  std::string path() const { return folder_.path().string(); }

 private:
  TemporaryFolder folder_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

PackedWeight random_weight(const QuantizeOptions& options, std::int64_t out, std::int64_t in) {
  Context ctx;
  const Array values = random_normal({out, in}, 3);
  std::vector<float> dense(values.data.begin(), values.data.end());
  return quantize(ctx, Tensor(dense.data(), DType::f32, {out, in}), options);
}

const std::vector<QuantizeOptions> kEveryFormat = {
    {.format = Format::nvfp4},
    {.format = Format::mxfp4},
    {.format = Format::nf4},
    {.format = Format::int4},
    {.format = Format::int4, .group = 32},
    {.format = Format::int4, .group = 0},
    {.format = Format::int4, .group = 64, .zero_point = true},
    {.format = Format::int8},
    {.format = Format::int8, .group = 32},
    {.format = Format::fp8},
};

TEST(PackedWriter, WhatItWritesIsReadBackBitForBit) {
  const std::int64_t sizes[][2] = {{16, 128}, {7, 96}, {9, 51}, {1, 1}};  // padded words, odd rows
  for (const QuantizeOptions& options : kEveryFormat) {
    for (const auto& [out, in] : sizes) {
      const PackedWeight weight = random_weight(options, out, in);
      const auto packed = model::pack_tensors("embed_out", weight.weight);
      const Folder folder(packed.tensors, model::packed_config({.options = options}));
      const PackedLayouts layouts(folder.checkpoint());
      ASSERT_TRUE(layouts.is_packed("embed_out"));
      const PackedWeight read = layouts.read("embed_out", out, in);
      EXPECT_EQ(read.weight.format, options.format);
      EXPECT_EQ(read.weight.group, weight.weight.group);
      EXPECT_EQ(read.weight.zeros.defined(), options.zero_point);
      const std::vector<float> expected = decoded(weight.weight), actual = decoded(read.weight);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const float slack = options.format == Format::nvfp4 ? 3e-7f * std::abs(expected[i]) : 0.f;
        ASSERT_NEAR(actual[i], expected[i], slack)
            << name(options.format) << " [" << out << ", " << in << "] " << i;
      }
      EXPECT_TRUE(layouts.notes().empty());
    }
  }
}

TEST(PackedWriter, SaysBeforehandWhatItWillWrite) {
  for (const QuantizeOptions& options : kEveryFormat) {
    const PackedWeight weight = random_weight(options, 9, 51);
    const auto packed = model::pack_tensors("m", weight.weight);
    const auto planned = model::packed_tensors("m", options, 9, 51);
    ASSERT_EQ(planned.size(), packed.tensors.size());
    for (std::size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(planned[i].name, packed.tensors[i].name);
      EXPECT_EQ(planned[i].dtype, packed.tensors[i].dtype);
      EXPECT_EQ(planned[i].shape, packed.tensors[i].shape);
    }
  }
}

TEST(PackedLayouts, ReadsOneScaleForTheWholeTensorAndPlainZeroPoints) {
  const std::int8_t codes[] = {-128, 0, 127, 5, 6, 7};  // [2, 3]
  const float scale = 0.5f;
  const std::int8_t zero = -3;
  const Folder folder(
      {{"a.weight", "I8", {2, 3}, std::as_bytes(std::span(codes))},
       {"a.weight_scale", "F32", {1}, std::as_bytes(std::span(&scale, 1))},
       {"a.weight_zero_point", "I8", {1}, std::as_bytes(std::span(&zero, 1))}},
      Json::parse(R"({"quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"symmetric": false}}}})"));
  const std::vector<float> expected = {-62.5f, 1.5f, 65.f, 4.f, 4.5f, 5.f};
  EXPECT_EQ(decoded(PackedLayouts(folder.checkpoint()).read("a", 2, 3).weight), expected);
}

TEST(PackedLayouts, APackedEmbeddingIsReadAsTheHeadIsThatItIsTiedTo) {
  const QuantizeOptions options{.format = Format::int4, .group = 32};
  const PackedWeight weight = random_weight(options, 8, 64);
  const auto packed = model::pack_tensors("gpt_neox.embed_in", weight.weight);
  for (const bool embedding : {false, true}) {
    const Folder folder(packed.tensors,
                        model::packed_config({.options = options, .embedding = embedding}));
    const PackedLayouts layouts(folder.checkpoint());
    ASSERT_TRUE(layouts.is_packed("gpt_neox.embed_in"));
    EXPECT_EQ(decoded(layouts.read("gpt_neox.embed_in", 8, 64).weight), decoded(weight.weight));
  }
}

TEST(PackedLayouts, ADenseLayerThatTheConfigCallsPackedIsDense) {
  const std::vector<std::byte> dense(2 * 4 * 4);
  const std::vector<std::byte> scale(2 * 4);
  const Json config = model::packed_config({.options = {.format = Format::int8}});
  const Folder plain({{"a.weight", "F16", {4, 4}, dense}}, config);
  EXPECT_FALSE(PackedLayouts(plain.checkpoint()).is_packed("a"));
  EXPECT_FALSE(PackedLayouts(plain.checkpoint()).any_packed());
  EXPECT_TRUE(PackedLayouts(plain.checkpoint()).notes().empty());
  const Folder with_scale(
      {{"a.weight", "F16", {4, 4}, dense}, {"a.weight_scale", "F16", {4, 1}, scale}}, config);
  EXPECT_EQ(PackedLayouts(with_scale.checkpoint()).notes().at(0),
            "1 layers are dense with a weight_scale beside them: they are used as they are");
}

// ---- refusals -----------------------------------------------------------------------------------

testing::AssertionResult refuses_folder(const Folder& folder, const std::string& part) {
  try {
    PackedLayouts(folder.checkpoint()).read("a", 8, 64);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "refused with: " << text << "\nexpected: " << part;
  }
  return testing::AssertionFailure() << "was not refused; expected: " << part;
}

TEST(PackedLayouts, PackedTensorsThatTheConfigDoesNotExplainAreRefused) {
  const QuantizeOptions options{.format = Format::nvfp4};
  const PackedWeight weight = random_weight(options, 8, 64);
  const auto packed = model::pack_tensors("a", weight.weight);
  EXPECT_TRUE(refuses_folder(Folder(packed.tensors, nullptr),
                             "a.weight_packed U8[8, 32] is packed, but neither config.json "
                             "(quantization_config) nor hf_quant_config.json says how"));
  const Json ignored = model::packed_config({.options = options, .ignore = {"a"}});
  EXPECT_TRUE(refuses_folder(Folder(packed.tensors, ignored), "leaves that layer dense"));
}

TEST(PackedLayouts, WrongShapesNameTheTensorAndSayBoth) {
  for (const QuantizeOptions& options : kEveryFormat) {
    const PackedWeight weight = random_weight(options, 8, 65);  // the model asks for 64
    const auto packed = model::pack_tensors("a", weight.weight);
    const Folder folder(packed.tensors, model::packed_config({.options = options}));
    const std::string first = packed.tensors[0].name;
    EXPECT_TRUE(refuses_folder(folder, "the file has " + first)) << name(options.format);
    EXPECT_TRUE(refuses_folder(folder, "[8, 64] of the model needs")) << name(options.format);
  }
}

TEST(PackedLayouts, WrongPartsAreRefusedInOneSentence) {
  const QuantizeOptions int4{.format = Format::int4, .group = 32};
  const QuantizeOptions nvfp4{.format = Format::nvfp4};
  const float zero = 0.f;
  const std::int64_t shape[] = {8, 63};
  const auto as_bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const struct {
    QuantizeOptions options;
    std::function<void(std::vector<TensorToWrite>&)> spoil;
    const char* expected;
  } cases[] = {
      {int4, [](auto& tensors) { tensors.erase(tensors.begin() + 1); },
       "has no tensor a.weight_scale; pack-quantized weights have one, of F32 or F16 or BF16"},
      {int4, [](auto& tensors) { tensors[1].dtype = "I16"; },
       "the file has a.weight_scale I16[8, 2], but the pack-quantized weight [8, 64]"},
      {int4,
       [](auto& tensors) {
         tensors[1].shape = {2, 8};
       },
       "the file has a.weight_scale BF16[2, 8]"},
      {int4, [&](auto& tensors) { tensors.back().data = as_bytes(shape); },
       "a.weight_shape says [8, 63], but the weight of the model is [8, 64]"},
      {int4,
       [&](auto& tensors) {
         tensors.push_back({"a.weight_g_idx", "F32", {1}, as_bytes(std::span(&zero, 1))});
       },
       "the file has a.weight_g_idx, "},
      {nvfp4, [&](auto& tensors) { tensors.back().data = as_bytes(std::span(&zero, 1)); },
       "a.weight_global_scale is 0; the scale of a tensor must be positive and finite"},
      {nvfp4, [](auto& tensors) { tensors.pop_back(); }, "has no tensor a.weight_global_scale"},
  };
  for (const auto& c : cases) {
    const PackedWeight weight = random_weight(c.options, 8, 64);
    auto packed = model::pack_tensors("a", weight.weight);
    c.spoil(packed.tensors);
    const Folder folder(packed.tensors, model::packed_config({.options = c.options}));
    EXPECT_TRUE(refuses_folder(folder, c.expected));
  }
}

TEST(PackedLayouts, AGroupThatNoKernelTakesIsRefused) {
  QuantizeOptions options{.format = Format::int4, .group = 32};
  const PackedWeight weight = random_weight(options, 8, 64);
  const auto packed = model::pack_tensors("a", weight.weight);
  options.group = 24;
  EXPECT_TRUE(refuses_folder(Folder(packed.tensors, model::packed_config({.options = options})),
                             "a: int4 in groups of 24 is not supported; accepted: "));
}

}  // namespace
}  // namespace tessera::test
