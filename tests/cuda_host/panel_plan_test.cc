// How cuda.panels divides its work (panel_plan.h). For all sizes, all work is done once, and blocks
// that wait for one another run at the same time.
#include "cuda/linear/plan/panel_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace tessera::cuda {
namespace {

constexpr int kPanelMultiprocessors = 132;

PanelSizes panel_sizes_of(std::int64_t tiles, int pairs, std::int64_t m) {
  return {.tiles = tiles, .pairs = pairs, .m = m, .multiprocessors = kPanelMultiprocessors};
}

void check_panel_sizes(const PanelPlan& plan, std::int64_t tiles, std::int64_t m) {
  EXPECT_EQ(plan.tokens, m <= 32 ? 32 : m <= 64 ? 64 : 128);
  EXPECT_GE(std::int64_t{plan.token_blocks} * plan.tokens, m);
  EXPECT_LT(std::int64_t{plan.token_blocks - 1} * plan.tokens, m);
  EXPECT_GE(plan.panel_tiles, 1);
  EXPECT_LE(plan.panel_tiles, kPanelTiles);
  EXPECT_GE(std::int64_t{plan.panels} * plan.panel_tiles, tiles);
  EXPECT_LT(std::int64_t{plan.panels - 1} * plan.panel_tiles, tiles);
  EXPECT_GE(plan.blocks, 1);
  EXPECT_LE(plan.blocks, kPanelMultiprocessors);
}

TEST(PanelPlan, CoversEverySizeOnce) {
  for (const std::int64_t tiles : {1, 7, 16, 17, 64, 160, 192, 256, 640, 896, 1792, 5000}) {
    for (const int pairs : {1, 2, 3, 6, 20, 32, 64, 224}) {
      for (const std::int64_t m : {1, 17, 64, 65, 128, 200, 256, 1000}) {
        SCOPED_TRACE(testing::Message() << tiles << " tiles, " << pairs << " pairs, " << m);
        const PanelPlan plan = plan_panels(panel_sizes_of(tiles, pairs, m));
        check_panel_sizes(plan, tiles, m);
        check_panel_sizes(plan_even_panels(panel_sizes_of(tiles, pairs, m)), tiles, m);
        if (plan.split == 0) continue;
        EXPECT_TRUE(std::find(std::begin(kPanelSplits), std::end(kPanelSplits), plan.split) !=
                    std::end(kPanelSplits));
        EXPECT_LE(plan.split, pairs);  // each block has a pair
        EXPECT_EQ(plan.blocks, plan.tiles() * plan.split);
      }
    }
  }
}

// Of a gated product, a block has as many tiles of gate as of up.
TEST(PanelPlan, PairsGateAndUp) {
  for (const std::int64_t tiles : {1, 3, 8, 9, 80, 160, 896, 1792}) {
    for (const int pairs : {1, 6, 32}) {
      for (const std::int64_t m : {17, 64, 128, 300}) {
        SCOPED_TRACE(testing::Message() << tiles << " tiles, " << pairs << " pairs, " << m);
        PanelSizes sizes = panel_sizes_of(2 * tiles, pairs, m);
        sizes.gated = true;
        for (const PanelPlan& plan : {plan_panels(sizes), plan_even_panels(sizes)}) {
          check_panel_sizes(plan, 2 * tiles, m);
          EXPECT_EQ(plan.panel_tiles % 2, 0);
        }
      }
    }
  }
}

// The scratch of a call is counted for the most tokens that it may have.
TEST(PanelPlan, SharedEvenlyMoreTokensTakeNoFewerBlocks) {
  for (const std::int64_t tiles : {1, 40, 640, 1792}) {
    for (const int pairs : {1, 5, 32}) {
      int before = 0;
      for (std::int64_t m = 1; m <= 1100; m += 27) {
        const int blocks = plan_even_panels(panel_sizes_of(tiles, pairs, m)).blocks;
        EXPECT_GE(blocks, before);
        before = blocks;
      }
    }
  }
}

TEST(PanelPlan, FewerMultiprocessorsThanAClusterHas) {
  const PanelPlan plan = plan_panels({.tiles = 64, .pairs = 20, .m = 64, .multiprocessors = 2});
  EXPECT_LE(plan.blocks, 2);
  EXPECT_GE(plan.blocks, 1);
}

}  // namespace
}  // namespace tessera::cuda
