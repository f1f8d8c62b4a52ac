// How cuda.split divides the keys of a sequence (attention/portable/tensor_core.h).
#include <gtest/gtest.h>

#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::split {
namespace {

// Blocks and memory are counted for the largest possible number of keys. A sequence may have fewer.
TEST(AttentionSplits, AreNeverMoreThanCounted) {
  for (const std::int64_t heads : {1, 8, 12, 32, 64}) {
    const int limit = split_limit(heads);
    int most = 0;
    for (int steps = 1; steps < 4000; ++steps) {
      const int splits = splits_of(steps, limit), each = steps_of_split(steps, limit);
      ASSERT_GE(splits * each, steps);
      ASSERT_LE(splits, limit);
      most = std::max(most, splits);
      // One step need not be full, so this many keys take at most `steps` steps.
      ASSERT_GE(most_splits(std::int64_t{steps - 1} * kStepKeys, limit), most) << steps;
    }
  }
}

TEST(AttentionSplits, ShortSequencesHaveNothingToMerge) {
  EXPECT_EQ(splits_of(0, 8), 1);
  EXPECT_EQ(splits_of(kWarps * kShortLeast, 32), 1);
  EXPECT_EQ(splits_of(kWarps * kShortLeast + 1, 32), 2);
}

}  // namespace
}  // namespace tessera::cuda::split
