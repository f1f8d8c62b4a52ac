// Measurement decides which layers stay dense.
#include "engine/auto_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/sensitivity.h"
#include "model/checkpoint/quantize_checkpoint.h"
#include "support/files.h"
#include "tessera/error.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

using model::Checkpoint;
using model::LayerCost;

constexpr std::int64_t kTokens = 100;  // more than one step, but not a whole number of steps

class Sensitivity : public testing::Test {
 protected:
  std::unique_ptr<Model> load(const LoadOptions& options = {}) {
    return load_model(ctx_, folder_, options);
  }

  std::filesystem::path folder_ = data_path("goldens/neox-serial-untied");
  Context ctx_{{.threads = 2}};
};

TEST_F(Sensitivity, AModelDoesNotDivergeFromItself) {
  const auto model = load();
  const DivergenceProbe probe(ctx_, *model, self_written_text(ctx_, *model, kTokens));
  EXPECT_NEAR(probe.divergence(ctx_, *model), 0.0, 1e-6);  // f32 log-probabilities
}

TEST_F(Sensitivity, FewerBitsDivergeMore) {
  const auto model = load();
  const DivergenceProbe probe(ctx_, *model, self_written_text(ctx_, *model, kTokens));
  const double int8 = probe.divergence(ctx_, *load({.pack = {{.format = Format::int8}}}));
  const double int4 = probe.divergence(ctx_, *load({.pack = {{.format = Format::int4}}}));
  EXPECT_GT(int8, 0.0);
  EXPECT_GT(int4, 10 * int8);
}

TEST_F(Sensitivity, TheModelsOwnTextIsTheSameOnAnyNumberOfThreads) {
  const auto model = load();
  const std::vector<std::int32_t> text = self_written_text(ctx_, *model, kTokens);
  ASSERT_EQ(text.size(), static_cast<std::size_t>(kTokens));
  Context one({.threads = 1});
  EXPECT_EQ(self_written_text(one, *model, kTokens), text);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                          [&](std::int32_t id) { return id >= 0 && id < model->config().vocab; }));
}

TEST_F(Sensitivity, NoTextIsRefused) {
  const auto model = load();
  EXPECT_THROW(DivergenceProbe(ctx_, *model, {}), Error);
}

class AutoPlanTest : public Sensitivity {
 protected:
  AutoPlan plan(std::int64_t budget, const std::vector<PrecisionRule>& fixed = {},
                bool embedding = false) {
    return plan_automatically(
        ctx_, *checkpoint_,
        {.options = options_,
         .budget = budget,
         .fixed = fixed,
         .embedding = embedding,
         .text = [&](const Model& dense) { return self_written_text(ctx_, dense, kTokens); },
         .progress =
             [&](std::int64_t done, std::int64_t total) {
               done_ = done;
               total_ = total;
             }});
  }
  std::int64_t dense_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& tensor : checkpoint_->tensors()) {
      bytes += static_cast<std::int64_t>(tensor.data.size());
    }
    return bytes;
  }

  std::shared_ptr<const Checkpoint> checkpoint_ = Checkpoint::open(folder_);
  QuantizeOptions options_{.format = Format::int4, .group = 32};
  std::int64_t done_ = 0, total_ = 0;
};

TEST_F(AutoPlanTest, APlanFitsItsBudgetAndDivergesLessThanPackingAll) {
  const std::int64_t budget = dense_bytes() * 2 / 3;
  const AutoPlan result = plan(budget);
  EXPECT_EQ(result.tokens, kTokens);
  EXPECT_EQ(done_, 9);
  EXPECT_EQ(total_, 9);
  ASSERT_EQ(result.decided.layers.size(), 9u);
  double least_dense = 1e9, most_packed = 0;  // divergence per byte
  for (const LayerCost& layer : result.decided.layers) {
    EXPECT_GT(layer.divergence, 0.0) << layer.layer;
    const double worth =
        layer.divergence / static_cast<double>(layer.dense_bytes - layer.packed_bytes);
    if (layer.dense) least_dense = std::min(least_dense, worth);
    if (!layer.dense) most_packed = std::max(most_packed, worth);
  }
  EXPECT_LT(least_dense, 1e9);
  EXPECT_GT(most_packed, 0.0);
  EXPECT_LT(result.divergence, result.divergence_all_packed);
  EXPECT_LE(result.decided.bytes, budget);

  // The size that the plan states is the size that is written.
  const TemporaryFolder out;
  const auto written = quantize_checkpoint(
      ctx_, *checkpoint_, {.out = out.path(), .options = options_, .plan = result.decided.plan});
  EXPECT_EQ(written.bytes_after, result.decided.bytes);
}

TEST_F(AutoPlanTest, FixedLayersAreNotMeasured) {
  const AutoPlan result = plan(dense_bytes(), {{"*.mlp.*", Format::dense}});
  EXPECT_EQ(result.decided.layers.size(), 5u);
  for (const LayerCost& layer : result.decided.layers) EXPECT_TRUE(layer.dense);  // all fit
  EXPECT_NEAR(result.divergence, 0.0, 1e-6);
}

// The embedding used to be packed without measuring what that costs.
TEST_F(AutoPlanTest, TheEmbeddingIsMeasuredLikeALayer) {
  for (const char* name : {"neox-serial-untied", "neox-serial", "llama-biases-tied"}) {
    SCOPED_TRACE(name);
    folder_ = data_path(std::string("goldens/") + name);
    checkpoint_ = Checkpoint::open(folder_);
    const AutoPlan roomy = plan(dense_bytes(), {}, true);
    const auto& layers = roomy.decided.layers;
    const auto table = std::find_if(layers.begin(), layers.end(), [](const LayerCost& layer) {
      return layer.layer.ends_with("embed_in") || layer.layer.ends_with("embed_tokens");
    });
    ASSERT_NE(table, layers.end());
    EXPECT_GT(table->divergence, 0.0);
    EXPECT_TRUE(table->dense);  // there is room for all
    EXPECT_NEAR(roomy.divergence, 0.0, 1e-6);

    const AutoPlanArgs args{.options = options_, .embedding = true};
    const std::int64_t smallest = smallest_budget(*checkpoint_, args);
    const AutoPlan tight = plan(smallest, {}, true);
    EXPECT_EQ(tight.decided.bytes, smallest);
    EXPECT_EQ(tight.divergence, tight.divergence_all_packed);
    const TemporaryFolder out;
    const auto written = quantize_checkpoint(
        ctx_, *checkpoint_,
        {.out = out.path(), .options = options_, .plan = tight.decided.plan, .embedding = true});
    EXPECT_EQ(written.bytes_after, smallest);
  }
}

TEST_F(AutoPlanTest, ABudgetThatIsTooSmallIsRefusedBeforeMeasuring) {
  const std::int64_t smallest = smallest_budget(*checkpoint_, {.options = options_});
  EXPECT_THROW(plan(smallest - 1), Error);
  EXPECT_EQ(done_, 0);
  EXPECT_EQ(plan(smallest).decided.bytes, smallest);
}

}  // namespace
}  // namespace tessera::test
