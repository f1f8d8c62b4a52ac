#include "model/checkpoint/precision_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/refusal.h"

namespace tessera::test {
namespace {

using model::budget_text;
using model::LayerCost;
using model::parse_budget;
using model::plan_for_budget;

std::vector<LayerCost> three_layers() {
  return {{"a", 0.1, 100, 30}, {"b", 0.5, 400, 110}, {"c", 0.4, 200, 60}};  // 200 packed
}

std::string dense_layers(std::int64_t budget) {
  std::string names;
  const auto result = plan_for_budget(three_layers(), Format::nvfp4, budget + 50, 50);
  std::int64_t bytes = 50;  // what is not a layer
  for (const LayerCost& layer : result.layers) {
    EXPECT_EQ(layer.dense, result.plan.format_of(layer.layer) == Format::dense);
    if (layer.dense) names += layer.layer;
    bytes += layer.dense ? layer.dense_bytes : layer.packed_bytes;
  }
  EXPECT_EQ(bytes, result.bytes);
  EXPECT_LE(bytes, budget + 50);
  return names;
}

TEST(PrecisionPlan, TheMostSensitiveLayersForTheirSizeStayDense) {
  EXPECT_EQ(dense_layers(200), "");
  EXPECT_EQ(dense_layers(270), "a");   // c is worth more for its bytes, but does not fit
  EXPECT_EQ(dense_layers(340), "c");   // 0.4 / 140 comes before 0.5 / 290 and 0.1 / 70
  EXPECT_EQ(dense_layers(410), "ac");  // b no longer fits, but a does
  EXPECT_EQ(dense_layers(630), "bc");
  EXPECT_EQ(dense_layers(700), "abc");
}

TEST(PrecisionPlan, ABudgetThatNothingFitsIntoIsRefused) {
  EXPECT_TRUE(refuses([] { plan_for_budget(three_layers(), Format::nvfp4, 4'249, 4'050); },
                      "a budget of 0.004MB is too small: the smallest that can be met is 0.005MB, "
                      "with all layers packed as nvfp4"));
  const std::int64_t smallest = parse_budget(budget_text(4'250), 1);
  EXPECT_EQ(smallest, 5'000);
  EXPECT_NO_THROW(plan_for_budget(three_layers(), Format::nvfp4, smallest, 4'050));
}

TEST(PrecisionPlan, BudgetsAreSharesOrSizes) {
  EXPECT_EQ(parse_budget("60%", 1000), 600);
  EXPECT_EQ(parse_budget("300MB", 1), 300'000'000);
  EXPECT_EQ(parse_budget("1.5GiB", 1), 3LL << 29);
  EXPECT_EQ(parse_budget("2 KB", 1), 2000);
  EXPECT_EQ(parse_budget("4096B", 1), 4096);
  for (const char* wrong : {"", "much", "-5MB", "0", "5 TB", "1e300GB", "nan", "inf%", "60 %x"}) {
    EXPECT_TRUE(refuses([&] { parse_budget(wrong, 1000); },
                        "a budget is a share of the dense size (60%) or a size (300MB, 1.5GiB)"))
        << wrong;
  }
}

// Nobody means 60 bytes.
TEST(PrecisionPlan, ABudgetNeedsItsUnit) {
  EXPECT_TRUE(refuses([] { parse_budget("60", 1000); }, "a budget needs a unit: say 60% or 60MB"));
  EXPECT_TRUE(
      refuses([] { parse_budget("1.5", 1000); }, "a budget needs a unit: say 1.5% or 1.5MB"));
}

}  // namespace
}  // namespace tessera::test
