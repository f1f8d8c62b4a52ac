// How cuda.wide shares its work (wide_plan.h).
#include "cuda/linear/plan/wide_plan.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tessera::cuda {
namespace {

constexpr int kMultiprocessors = 132;

void check_sizes(const WidePlan& plan, std::int64_t tiles, std::int64_t rows) {
  constexpr int kHeight = kWideCluster * kWideTiles;
  EXPECT_GE(std::int64_t{plan.token_blocks} * kWideTokens, rows);
  EXPECT_LT(std::int64_t{plan.token_blocks - 1} * kWideTokens, rows);
  EXPECT_GE(std::int64_t{plan.panels} * kHeight, tiles);
  EXPECT_LT(std::int64_t{plan.panels - 1} * kHeight, tiles);
  EXPECT_GE(plan.clusters, 1);
  EXPECT_LE(plan.clusters * kWideCluster, kMultiprocessors);
  EXPECT_TRUE(plan.shared || plan.clusters <= plan.tiles());
}

TEST(WidePlan, CoversEverySizeOnce) {
  for (const std::int64_t tiles : {1, 7, 16, 17, 64, 192, 640, 896, 1792, 5000}) {
    for (const int pairs : {1, 2, 6, 20, 32, 64, 224}) {
      for (const std::int64_t rows : {1, 129, 256, 257, 1000, 1024, 4096}) {
        SCOPED_TRACE(testing::Message() << tiles << " tiles, " << pairs << " pairs, " << rows);
        check_sizes(plan_wide(tiles, pairs, rows, kMultiprocessors), tiles, rows);
        check_sizes(plan_even_wide(tiles, pairs, rows, kMultiprocessors), tiles, rows);
      }
    }
  }
}

// The scratch of a call is counted by the most rows that it may have.
TEST(WidePlan, SharedEvenlyMoreRowsTakeNoFewerClusters) {
  for (const std::int64_t tiles : {1, 40, 640, 1792}) {
    for (const int pairs : {1, 5, 32}) {
      int before = 0;
      for (std::int64_t rows = 1; rows <= 2100; rows += 51) {
        const int clusters = plan_even_wide(tiles, pairs, rows, kMultiprocessors).clusters;
        EXPECT_GE(clusters, before);
        before = clusters;
      }
    }
  }
}

TEST(WidePlan, SharesTilesWhereRoundsWouldBeHalfEmpty) {
  // 66 clusters: 112 tiles are 1.7 rounds, 132 are two.
  EXPECT_TRUE(plan_wide(/*weight_tiles=*/1792, /*pairs=*/64, /*rows=*/256, 132).shared);
  EXPECT_FALSE(plan_wide(/*weight_tiles=*/2112, /*pairs=*/64, /*rows=*/256, 132).shared);
}

TEST(WidePlan, FewerMultiprocessorsThanAClusterHas) {
  EXPECT_EQ(plan_wide(/*weight_tiles=*/64, /*pairs=*/20, /*rows=*/300, 1).clusters, 1);
}

}  // namespace
}  // namespace tessera::cuda
