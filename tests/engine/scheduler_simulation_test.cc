// All rules of the scheduler together, under random load (support/scheduler_simulation.h).
#include "support/scheduler_simulation.h"

#include <gtest/gtest.h>

#include "support/allocations.h"

namespace tessera::test {
namespace {

// Fewer under a sanitizer, where all is slower.
std::int64_t requests_of_a_seed() { return AllocationCounter::works() ? 1000 : 50; }

TEST(SchedulerSimulation, AHundredThousandRequestsKeepEveryRule) {
  SimulationResult sum;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulationResult result = simulate_scheduler(seed, requests_of_a_seed());
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    sum += result;
  }
  EXPECT_EQ(sum.accepted, 100 * requests_of_a_seed());
  EXPECT_EQ(sum.finished + sum.cancelled + sum.exhausted, sum.accepted + sum.forks);
  // The load is worth its name.
  const std::int64_t some = sum.accepted / 1000;
  EXPECT_GT(sum.preemptions, some * 10);
  EXPECT_GT(sum.overdue, some * 10);
  EXPECT_GT(sum.cancelled, some * 10);
  EXPECT_GT(sum.forks, some * 10);
  EXPECT_GT(sum.refused, some);
  EXPECT_GT(sum.exhausted, some);
  EXPECT_GT(sum.cached_tokens, some * 100);
  EXPECT_GT(sum.drafted_tokens, some * 100);
}

TEST(SchedulerSimulation, TheSameSeedGivesTheSamePlans) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const SimulationResult once = simulate_scheduler(seed, 200);
    EXPECT_EQ(once.hash, simulate_scheduler(seed, 200).hash) << "seed " << seed;
    EXPECT_NE(once.hash, simulate_scheduler(seed + 1000, 200).hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tessera::test
