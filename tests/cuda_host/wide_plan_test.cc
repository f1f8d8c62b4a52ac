// How cuda.wide divides its work (wide_plan.h).
#include "cuda/linear/plan/wide_plan.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tessera::cuda {
namespace {

constexpr int kWideMultiprocessors = 132;

PanelSizes wide_sizes_of(std::int64_t tiles, int pairs, std::int64_t m) {
  return {.tiles = tiles, .pairs = pairs, .m = m, .multiprocessors = kWideMultiprocessors};
}

void check_wide_sizes(const WidePlan& plan, std::int64_t tiles, std::int64_t m) {
  constexpr int kHeight = kWideCluster * kWideTiles;
  EXPECT_GE(std::int64_t{plan.token_blocks} * kWideTokens, m);
  EXPECT_LT(std::int64_t{plan.token_blocks - 1} * kWideTokens, m);
  EXPECT_GE(std::int64_t{plan.panels} * kHeight, tiles);
  EXPECT_LT(std::int64_t{plan.panels - 1} * kHeight, tiles);
  EXPECT_GE(plan.clusters, 1);
  EXPECT_LE(plan.clusters * kWideCluster, kWideMultiprocessors);
  EXPECT_TRUE(plan.shared || plan.clusters <= plan.tiles());
}

TEST(WidePlan, CoversEverySizeOnce) {
  for (const std::int64_t tiles : {1, 7, 16, 17, 64, 192, 640, 896, 1792, 5000}) {
    for (const int pairs : {1, 2, 6, 20, 32, 64, 224}) {
      for (const std::int64_t m : {1, 129, 256, 257, 1000, 1024, 4096}) {
        SCOPED_TRACE(testing::Message() << tiles << " tiles, " << pairs << " pairs, " << m);
        check_wide_sizes(plan_wide(wide_sizes_of(tiles, pairs, m)), tiles, m);
        check_wide_sizes(plan_even_wide(wide_sizes_of(tiles, pairs, m)), tiles, m);
      }
    }
  }
}

// The scratch of a call is counted for the most tokens that it may have.
TEST(WidePlan, SharedEvenlyMoreTokensTakeNoFewerClusters) {
  for (const std::int64_t tiles : {1, 40, 640, 1792}) {
    for (const int pairs : {1, 5, 32}) {
      int before = 0;
      for (std::int64_t m = 1; m <= 2100; m += 51) {
        const int clusters = plan_even_wide(wide_sizes_of(tiles, pairs, m)).clusters;
        EXPECT_GE(clusters, before);
        before = clusters;
      }
    }
  }
}

TEST(WidePlan, SharesTilesWhereRoundsWouldBeHalfEmpty) {
  // 66 clusters: 112 tiles are 1.7 rounds, 132 are two.
  EXPECT_TRUE(plan_wide(wide_sizes_of(1792, 64, 256)).shared);
  EXPECT_FALSE(plan_wide(wide_sizes_of(2112, 64, 256)).shared);
}

TEST(WidePlan, FewerMultiprocessorsThanAClusterHas) {
  EXPECT_EQ(plan_wide({.tiles = 64, .pairs = 20, .m = 300, .multiprocessors = 1}).clusters, 1);
}

}  // namespace
}  // namespace tessera::cuda
