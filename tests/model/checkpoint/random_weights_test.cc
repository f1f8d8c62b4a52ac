// Models of noise have the shape of a real checkpoint, and numbers that no layer blows up.
#include "model/checkpoint/random_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/architectures/config.h"
#include "reference/parity.h"
#include "support/devices.h"
#include "support/files.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

using model::make_random_model;

std::filesystem::path golden(const std::string& name) { return data_path("goldens/" + name); }

class RandomModel : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RandomModel, testing::ValuesIn(test_devices()), device_name);

TEST_P(RandomModel, HasTheLayersAndBytesOfACheckpointOfItsShape) {
  for (const char* name : {"neox-parallel", "llama-gqa", "llama-biases-tied", "qwen3"}) {
    SCOPED_TRACE(name);
    for (const auto& pack : {std::optional<QuantizeOptions>(),
                             std::optional(QuantizeOptions{.format = Format::nvfp4})}) {
      const auto real = load_model(ctx(), golden(name), {.pack = pack});
      const auto random = make_random_model(ctx(), real->config(), {.pack = pack});
      EXPECT_EQ(random->weight_bytes(), real->weight_bytes());
      EXPECT_EQ(random->dtype(), real->dtype());
      ASSERT_EQ(random->linear_layers().size(), real->linear_layers().size());
      for (std::size_t i = 0; i < real->linear_layers().size(); ++i) {
        const Weight& a = random->linear_layers()[i].weight;
        const Weight& b = real->linear_layers()[i].weight;
        EXPECT_EQ(a.format, b.format);
        EXPECT_EQ(a.layout, b.layout);
        EXPECT_EQ(a.out_features, b.out_features);
        EXPECT_EQ(a.in_features, b.in_features);
      }
    }
  }
}

TEST_P(RandomModel, EveryFormatGivesFiniteLogitsThatDiffer) {
  const std::vector<std::int32_t> ids{1, 5, 9, 200, 3};
  for (const Format format : {Format::dense, Format::int8, Format::int4, Format::nvfp4,
                              Format::mxfp4, Format::nf4, Format::fp8}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(std::string(name(format)) + " " + std::string(name(dtype)));
      const auto random = make_random_model(
          ctx(), read_model_config(golden("neox-parallel")),
          {.dtype = dtype,
           .pack = QuantizeOptions{.format = format, .group = format == Format::int4 ? 32 : -1}});
      EXPECT_EQ(random->linear_layers().front().weight.format, format);
      const reference::Observed observed = reference::observe(ctx(), *random, ids);
      const std::vector<double>& logits = observed.logits.data;
      EXPECT_TRUE(std::all_of(logits.begin(), logits.end(),
                              [](double logit) { return std::isfinite(logit); }));
      const auto [least, most] = std::minmax_element(logits.begin(), logits.end());
      EXPECT_GT(*most - *least, 0.01);
    }
  }
}

TEST(RandomModelShape, RowsAreNotCopiesOfEachOther) {
  Context ctx({.threads = 2});
  const auto random = make_random_model(ctx, read_model_config(golden("neox-parallel")));
  std::vector<std::vector<float>> rows;
  for (const LayerInfo& layer : random->linear_layers()) {
    const Tensor& matrix = layer.weight.data;
    for (std::int64_t row = 0; row < matrix.size(0); ++row) {
      const auto* from = matrix.ptr<const float>() + row * matrix.size(1);
      rows.emplace_back(from, from + matrix.size(1));
    }
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
}

// The authors count the same number.
TEST(RandomModelShape, ThePythia160MShapeHas162MillionParameters) {
  Context ctx({.threads = 2});
  const std::string text = read_text(data_path("../../bench/shapes/pythia-160m.json"));
  const auto random = make_random_model(ctx, model::parse_model_config(text, "pythia-160m.json"));
  EXPECT_EQ(random->weight_bytes(), 2 * std::int64_t{162'322'944});  // f16
  EXPECT_EQ(random->dtype(), DType::f32);
}

TEST(RandomModelShape, RefusesWhatALoadedModelWouldRefuse) {
  Context ctx({.threads = 2});
  const ModelConfig config = read_model_config(golden("neox-parallel"));
  EXPECT_TRUE(refuses([&] { make_random_model(ctx, config, {.dtype = DType::i32}); },
                      "a model computes in f32, f16 or bf16, got i32"));
  const QuantizeOptions pack{.format = Format::int4, .group = 24};
  EXPECT_TRUE(
      refuses([&] { make_random_model(ctx, config, {.pack = pack}); },
              "gpt_neox.layers.0.attention.query_key_value: quantize: int4 in groups of 24 was "
              "asked for; accepted: 0 (the whole row) or a multiple of 16"));
}

}  // namespace
}  // namespace tessera::test
