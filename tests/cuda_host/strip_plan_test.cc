// How cuda.strips divides its work (strip_plan.h). For all sizes, all work is done once, and
// everything it needs fits.
#include "cuda/linear/plan/strip_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::cuda {
namespace {

StripSizes nvfp4(int tiles, int pairs, int m) {
  return {.tiles = tiles,
          .pairs = pairs,
          .code_bytes = 1024,
          .scale_bytes = 128,
          .m = m,
          .multiprocessors = 132,
          .shared_bytes = 227 * 1024};
}

void check(const StripPlan& plan, const StripSizes& sizes) {
  ASSERT_GE(plan.tiles, 1);
  ASSERT_GE(plan.shares, 1);
  EXPECT_LE(plan.warps(), kMostStripWarps);
  EXPECT_GE(plan.strips * plan.tiles, sizes.tiles);
  EXPECT_LT((plan.strips - 1) * plan.tiles, sizes.tiles);
  EXPECT_LE(plan.shares, sizes.pairs);  // each has something to do
  EXPECT_GE(plan.groups * kStripGroup, sizes.m);
  EXPECT_LT((plan.groups - 1) * kStripGroup, sizes.m);
  EXPECT_EQ(plan.blocks, std::min(plan.items(), sizes.multiprocessors));
  EXPECT_EQ(plan.stages % plan.shares, 0);
  EXPECT_GE(plan.stages, 2 * plan.shares);
  EXPECT_EQ(plan.stage_bytes % 1024, 0);
  EXPECT_LE(plan.shared_bytes, sizes.shared_bytes);
  EXPECT_LT(plan.stages * plan.stage_bytes, plan.shared_bytes);
}

TEST(StripPlan, CoversEverySizeOnce) {
  for (const int tiles : {1, 2, 7, 29, 160, 192, 256, 480, 640, 896, 1792, 8016}) {
    for (const int pairs : {1, 2, 3, 6, 20, 32, 64, 80, 224}) {
      for (const int m : {1, 8, 9, 16, 17, 100, 128}) {
        SCOPED_TRACE(testing::Message() << tiles << " tiles, " << pairs << " pairs, " << m);
        check(plan_strips(nvfp4(tiles, pairs, m)), nvfp4(tiles, pairs, m));
      }
    }
  }
}

TEST(StripPlan, EveryFormatFits) {
  for (const int code_bytes : {1024, 2048}) {
    for (const int scale_bytes : {0, 64, 128, 512}) {
      for (const int table_bytes : {0, 32768}) {
        StripSizes sizes = nvfp4(640, 20, 16);
        sizes.code_bytes = code_bytes;
        sizes.scale_bytes = scale_bytes;
        sizes.zero_bytes = scale_bytes / 4;
        sizes.table_bytes = table_bytes;
        check(plan_strips(sizes), sizes);
      }
    }
  }
}

// If there is enough to do, all multiprocessors and most of their warps have a share.
TEST(StripPlan, UsesTheGpu) {
  EXPECT_EQ(plan_strips(nvfp4(1, 20, 16)).blocks, 1);
  for (const int tiles : {256, 640, 896, 1792}) {
    const StripPlan plan = plan_strips(nvfp4(tiles, 32, 16));
    EXPECT_GE(plan.blocks, 120) << tiles;
    EXPECT_GE(plan.warps(), 20) << tiles;
  }
  // More tokens than a group has are done in one round, where that is possible.
  const StripPlan plan = plan_strips(nvfp4(192, 6, 32));
  EXPECT_GE(plan.blocks, 120);
  EXPECT_LE(plan.items(), 132);
}

}  // namespace
}  // namespace tessera::cuda
