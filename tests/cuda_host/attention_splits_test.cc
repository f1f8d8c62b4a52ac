// How cuda.split divides the keys of a sequence (attention/portable/tensor_core.h).
#include <gtest/gtest.h>

#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::split {
namespace {

// Blocks and memory are counted for the largest possible number of keys. A sequence may have fewer.
TEST(AttentionSplits, AreNeverMoreThanCounted) {
  for (const std::int64_t heads : {1, 8, 12, 32, 64}) {
    for (const std::int64_t sequences : {1, 8, 64}) {
      const SplitRule rule = split_rule(heads, heads * sequences);
      int most = 0;
      for (int steps = 1; steps < 4000; ++steps) {
        const int splits = splits_of(steps, rule), each = steps_of_split(steps, rule);
        ASSERT_GE(splits * each, steps);
        ASSERT_LE(splits, rule.limit);
        most = std::max(most, splits);
        // One step need not be full, so this many keys take at most `steps` steps.
        ASSERT_GE(most_splits(std::int64_t{steps - 1} * kStepKeys, rule), most) << steps;
      }
    }
  }
}

TEST(AttentionSplits, ShortSequencesHaveNothingToMerge) {
  const SplitRule rule = split_rule(8, 8);
  EXPECT_EQ(splits_of(0, rule), 1);
  EXPECT_EQ(splits_of(kWarps * rule.least_short, rule), 1);
  EXPECT_EQ(splits_of(kWarps * rule.least_short + 1, rule), 2);
}

TEST(AttentionSplits, ManySequencesAreSplitLess) {
  constexpr int kSteps = 512 / kStepKeys;
  EXPECT_EQ(splits_of(kSteps, split_rule(32, 32)), 4);
  EXPECT_EQ(splits_of(kSteps, split_rule(32, 128)), 2);
  EXPECT_EQ(splits_of(kSteps, split_rule(32, 1024)), 1);
}

}  // namespace
}  // namespace tessera::cuda::split
