// How cuda.mma divides its work (mma_plan.h). For all sizes, all work is done once, and the scratch
// that is counted ahead is enough.
#include "cuda/linear/plan/mma_plan.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tessera::cuda {
namespace {

// The work for nvfp4 on an H200.
MmaWork work_of(std::int64_t n, int pairs, std::int64_t m) {
  return {.n = n,
          .pairs = pairs,
          .m = m,
          .tile_bytes = 1024 + 128,
          .multiprocessors = 132,
          .shared_bytes = 227 << 10};
}

// The blocks cover all units in order, and each block has at least one.
void check_units(const MmaPlan& plan, int pairs) {
  EXPECT_EQ(plan.units, plan.tiles() * pairs);
  EXPECT_EQ(plan.first_unit(0), 0);
  EXPECT_EQ(plan.first_unit(plan.blocks), plan.units);
  for (int block = 0; block < plan.blocks; ++block) {
    const int first = plan.first_unit(block), next = plan.first_unit(block + 1);
    ASSERT_LT(first, next);
    ASSERT_EQ(plan.block_of(first), block);
    ASSERT_EQ(plan.block_of(next - 1), block);
    ASSERT_TRUE(!plan.whole_tiles() || first % pairs == 0);
  }
}

TEST(MmaPlan, CoversEverySizeOnce) {
  for (const std::int64_t n : {16, 256, 272, 2560, 10240, 28672, 80000}) {
    for (const int pairs : {1, 2, 3, 6, 20, 32, 64, 224}) {
      for (const std::int64_t m : {1, 17, 32, 33, 64, 65, 200, 256, 1000}) {
        for (const int multiprocessors : {2, 68, 132}) {
          SCOPED_TRACE(testing::Message() << n << " x " << pairs << " x " << m);
          MmaWork work = work_of(n, pairs, m);
          work.multiprocessors = multiprocessors;
          const MmaPlan plan = plan_mma(work);
          EXPECT_GE(std::int64_t{plan.token_blocks} * plan.tokens, m);
          EXPECT_LT(std::int64_t{plan.token_blocks - 1} * plan.tokens, m);
          EXPECT_GE(std::int64_t{plan.feature_blocks} * plan.features(), n);
          EXPECT_LT(std::int64_t{plan.feature_blocks - 1} * plan.features(), n);
          check_units(plan, pairs);
        }
      }
    }
  }
}

// A call's scratch is counted for the most tokens that it may have.
TEST(MmaPlan, FewerRowsTakeNoMoreScratchThanIsCounted) {
  for (const std::int64_t n : {16, 2560, 4096, 10240, 28672}) {
    for (const int pairs : {1, 20, 64}) {
      for (const std::int64_t m : {20, 64, 250, 600}) {
        MmaWork work = work_of(n, pairs, m);
        const std::int64_t counted = most_mma_part_floats(work);
        for (work.m = 1; work.m <= m; ++work.m) {
          ASSERT_LE(plan_mma(work).part_floats(), counted) << work.m << " of " << m;
        }
      }
    }
  }
}

// With few features, blocks share the pairs of a tile. If tiles fill all multiprocessors, each tile
// has a block.
TEST(MmaPlan, PartsWhereTilesAreFew) {
  MmaWork work = work_of(4096, 32, 64);
  EXPECT_GT(plan_mma(work).blocks, plan_mma(work).tiles());
  work.n = 256 * 2 * 132;
  EXPECT_TRUE(plan_mma(work).whole_tiles());
}

// If blocks may have less shared memory, tiles are smaller. int8 with zero points and scales takes
// the most.
TEST(MmaPlan, FitsIntoSharedMemory) {
  for (const std::int64_t bytes : {99 << 10, 163 << 10, 227 << 10}) {
    for (const int tile_bytes : {1024 + 64, 1024 + 512 + 128, 2048 + 128 + 32}) {
      for (const std::int64_t m : {20, 60, 100, 1000}) {
        MmaWork work = work_of(4096, 32, m);
        work.tile_bytes = tile_bytes;
        work.shared_bytes = bytes;
        const MmaPlan plan = plan_mma(work);
        EXPECT_GT(plan.blocks, 0);
        EXPECT_LE(mma_shared_bytes(work, plan), bytes);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
