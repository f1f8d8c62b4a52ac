// Where the time of a hand-made trace went: every figure is known beforehand.
#include "profile/breakdown.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "profile/ceilings.h"

namespace tessera::profile {
namespace {

// 10 GB/s, 100 GFLOP/s in f32, 400 of 8-bit products.
constexpr Ceilings kMachine{.read_bandwidth = 10e9, .f32_rate = 100e9, .matrix_rate = 400e9};

TraceEntry call(std::string op, std::string kernel, std::int64_t calls, double ms,
                std::int64_t bytes, std::int64_t flops) {
  return {.op = std::move(op),
          .kernel = std::move(kernel),
          .shapes = {},
          .calls = calls,
          .seconds = ms / 1e3,
          .bytes = bytes,
          .flops = flops};
}

// A step of 10 ms: a product that is bound by memory takes 6, attention that is bound by arithmetic
// 2.5, a norm 0.5, and nobody knows of 1.
std::vector<TraceEntry> known_step() {
  return {call("rms_norm", "cpu", 2, 0.5, 1'000'000, 0),
          call("linear", "cpu.tiles.int8", 3, 4.0, 20'000'000, 80'000'000),
          call("attention", "cpu.decode", 1, 2.5, 1'000'000, 200'000'000),
          call("linear", "cpu.tiles.int8", 1, 2.0, 10'000'000, 40'000'000)};
}

const BreakdownRow& row(const Breakdown& result, const std::string& op) {
  for (const BreakdownRow& candidate : result.rows) {
    if (candidate.op == op) return candidate;
  }
  throw std::runtime_error("no row " + op);
}

TEST(Breakdown, KnownStepHasKnownRows) {
  const Breakdown result = break_down(known_step(), 10e-3, kMachine);
  EXPECT_DOUBLE_EQ(result.wall_ms, 10);
  ASSERT_EQ(result.rows.size(), 4u);  // calls of one op on one kernel are one row
  const BreakdownRow& linear = result.rows[0];
  EXPECT_EQ(linear.op, "linear");
  EXPECT_EQ(linear.kernel, "cpu.tiles.int8");
  EXPECT_EQ(linear.calls, 4);
  EXPECT_DOUBLE_EQ(linear.ms, 6);
  EXPECT_DOUBLE_EQ(linear.share, 0.6);
  EXPECT_EQ(linear.bytes, 30'000'000);
  EXPECT_EQ(linear.flops, 120'000'000);
  EXPECT_DOUBLE_EQ(linear.floor_ms, 3);                // 30 MB at 10 GB/s; flops take 0.3 ms
  EXPECT_DOUBLE_EQ(linear.max_gain, 10.0 / 7.0 - 1);   // 10 ms become 7
  EXPECT_DOUBLE_EQ(linear.free_gain, 10.0 / 4.0 - 1);  // or 4
  const BreakdownRow& attention = result.rows[1];
  EXPECT_EQ(attention.op, "attention");
  EXPECT_DOUBLE_EQ(attention.floor_ms, 2);  // 0.2 GFLOP at 100 GFLOP/s; bytes take 0.1 ms
  EXPECT_DOUBLE_EQ(attention.max_gain, 10.0 / 9.5 - 1);
  EXPECT_EQ(result.rows[2].op, "rms_norm");
}

TEST(Breakdown, GapsAreWhatNoOpAccountsForAndSharesAddUpToOne) {
  const Breakdown result = break_down(known_step(), 10e-3, kMachine);
  const BreakdownRow& gaps = result.rows.back();
  EXPECT_EQ(gaps.op, "gaps");
  EXPECT_NEAR(gaps.ms, 1, 1e-9);
  EXPECT_NEAR(gaps.share, 0.1, 1e-9);
  EXPECT_DOUBLE_EQ(gaps.floor_ms, 0);
  const double sum = std::accumulate(result.rows.begin(), result.rows.end(), 0.0,
                                     [](double s, const BreakdownRow& r) { return s + r.share; });
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Breakdown, TheRuleIsATenthOfTheTimeOrFifteenPercentToGain) {
  const Breakdown result = break_down(known_step(), 10e-3, kMachine);
  EXPECT_TRUE(row(result, "linear").worth_it);
  EXPECT_TRUE(row(result, "attention").worth_it);
  EXPECT_FALSE(row(result, "rms_norm").worth_it);
  EXPECT_TRUE(row(result, "linear").advice.starts_with("worth optimising: 60% of the time"))
      << row(result, "linear").advice;
  EXPECT_NE(row(result, "linear").advice.find("gain 43%"), std::string::npos);
  EXPECT_NE(row(result, "attention").advice.find("at its floor (arithmetic)"), std::string::npos);
  EXPECT_EQ(row(result, "rms_norm").advice,
            "leave it: 5.0% of the time; without it, the whole run would gain 5.3%");
  // Just below and just above a tenth.
  const std::vector<TraceEntry> below{call("a", "cpu", 1, 0.99, 0, 0)};
  const std::vector<TraceEntry> above{call("a", "cpu", 1, 1.01, 0, 0)};
  EXPECT_FALSE(break_down(below, 10e-3, kMachine).rows[0].worth_it);
  EXPECT_TRUE(break_down(above, 10e-3, kMachine).rows[0].worth_it);
}

TEST(Breakdown, ShortCallsAreToldToMerge) {
  const std::vector<TraceEntry> calls{call("add", "cuda", 1000, 2.0, 0, 0)};
  const Breakdown result = break_down(calls, 10e-3, kMachine);
  EXPECT_NE(result.rows[0].advice.find("calls of 2.0 us"), std::string::npos)
      << result.rows[0].advice;
}

TEST(Breakdown, OpsThatThePlanPromisedAndNobodySawAreListed) {
  const std::vector<model::StepCalls> promised{
      {"linear", 4}, {"gated_linear", 2}, {"embedding", 0}};
  const Breakdown result = break_down(known_step(), 10e-3, kMachine, promised);
  ASSERT_EQ(result.rows.size(), 5u);
  const BreakdownRow& missing = result.rows.back();
  EXPECT_EQ(missing.op, "gated_linear");
  EXPECT_EQ(missing.calls, 0);
  EXPECT_EQ(missing.share, 0);
  EXPECT_TRUE(missing.advice.starts_with("never called: the model's plan has 2 calls"))
      << missing.advice;
}

TEST(Breakdown, AnOpFasterThanItsFloorGainsNothing) {
  const std::vector<TraceEntry> cached{call("linear", "cpu.gemv.f32", 1, 1, 50'000'000, 0)};
  const BreakdownRow linear = break_down(cached, 10e-3, kMachine).rows[0];
  EXPECT_DOUBLE_EQ(linear.floor_ms, 5);
  EXPECT_DOUBLE_EQ(linear.max_gain, 0);
}

TEST(Breakdown, OverlappingKernelsLeaveNoNegativeGap) {
  const std::vector<TraceEntry> calls{call("a", "cuda", 1, 6, 0, 0), call("b", "cuda", 1, 6, 0, 0)};
  EXPECT_EQ(break_down(calls, 10e-3, kMachine).rows.back().ms, 0);
}

TEST(Breakdown, NothingAtAllIsNoDivisionByZero) {
  const Breakdown result = break_down({}, 0, kMachine);
  ASSERT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.rows[0].share, 0);
}

TEST(Ceilings, KernelsHaveTheirOwnRates) {
  EXPECT_EQ(kMachine.rate_for("cpu.tiles.int8"), 400e9);
  EXPECT_EQ(kMachine.rate_for("cpu.tiles.exact"), 100e9);
  EXPECT_EQ(kMachine.rate_for("cpu.prefill"), 100e9);
  EXPECT_EQ(kMachine.rate_for("cuda.split"), 400e9);
  EXPECT_EQ(kMachine.rate_for("cuda.plain.decode"), 100e9);
}

TEST(Ceilings, AreMeasuredAndPlausible) {
  Context ctx({.threads = 2});
  const Ceilings measured = measure_ceilings(ctx, std::int64_t{32} << 20);
  EXPECT_GT(measured.read_bandwidth, 0.5e9);
  EXPECT_LT(measured.read_bandwidth, 5e12);
  EXPECT_GT(measured.f32_rate, 0.1e9);
  EXPECT_LT(measured.f32_rate, 5e13);
  EXPECT_GE(measured.matrix_rate, measured.f32_rate);
}

TEST(Ceilings, BandwidthsAreMeasuredOncePerSize) {
  Context ctx({.threads = 2});
  Bandwidths bandwidths(ctx);
  const double small = bandwidths.over(20'000);
  EXPECT_GT(small, 0);
  EXPECT_EQ(bandwidths.over(32'000), small);  // the same power of two
  EXPECT_EQ(bandwidths.over(1), bandwidths.over(16'384));
}

}  // namespace
}  // namespace tessera::profile
