// GPU times of ops from hand-made records of kernels.
#include "profile/kernel_times.h"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/error.h"

namespace tessera::profile {
namespace {

KernelSpan span(const char* name, std::int64_t start, std::int64_t end, std::int64_t call) {
  return {.name = name, .start_ns = start, .end_ns = end, .call = call};
}

TraceEntry entry(const char* op, std::int64_t calls) {
  return {.op = op, .kernel = "cuda", .shapes = {}, .calls = calls, .seconds = 99};
}

// norm, linear, norm; the linear op launches two kernels.
const std::vector<TraceEntry> kTraced{entry("norm", 2), entry("linear", 1)};
const std::vector<std::size_t> kOrder{0, 1, 0};

TEST(KernelTimes, AddsUpTheKernelsOfEachOp) {
  const std::vector<KernelSpan> spans{span("n", 1000, 1500, 0), span("l1", 2000, 5000, 1),
                                      span("l2", 5000, 6000, 1), span("n", 7000, 7250, 2)};
  const KernelTimes times = time_entries(kTraced, kOrder, spans);
  ASSERT_EQ(times.entries.size(), 2u);
  EXPECT_NEAR(times.entries[0].seconds, 750e-9, 1e-15);
  EXPECT_NEAR(times.entries[1].seconds, 4000e-9, 1e-15);
  EXPECT_EQ(times.entries[0].calls, 2);
  EXPECT_NEAR(times.busy_seconds, 4750e-9, 1e-15);
  EXPECT_NEAR(times.span_seconds, 6250e-9, 1e-15);  // the gaps between kernels are 1.5 us
}

TEST(KernelTimes, WhatTwoKernelsShareCountsOnce) {
  // The second starts while the first still runs; the third runs within the second.
  const std::vector<KernelSpan> spans{span("n", 0, 1000, 0), span("l", 600, 2000, 1),
                                      span("n", 1200, 1800, 2)};
  const KernelTimes times = time_entries(kTraced, kOrder, spans);
  EXPECT_NEAR(times.entries[0].seconds, 1000e-9, 1e-15);
  EXPECT_NEAR(times.entries[1].seconds, 1000e-9, 1e-15);
  EXPECT_NEAR(times.busy_seconds, 2000e-9, 1e-15);
  EXPECT_NEAR(times.span_seconds, 2000e-9, 1e-15);
}

TEST(KernelTimes, OpsWithoutAKernelTakeNoTime) {
  const KernelTimes times = time_entries(kTraced, kOrder, {});
  for (const TraceEntry& one : times.entries) EXPECT_EQ(one.seconds, 0);
}

TEST(KernelTimes, RefusesKernelsOfUnknownCalls) {
  const std::vector<KernelSpan> beyond{span("n", 0, 1, 3)};
  EXPECT_THROW(time_entries(kTraced, kOrder, beyond), Error);
  const std::vector<KernelSpan> none{span("n", 0, 1, KernelSpan::kNoCall)};
  EXPECT_THROW(time_entries(kTraced, kOrder, none), Error);
}

// A captured step that takes twice as long, and a norm of the step after it.
TEST(KernelTimes, CapturedKernelsGoToTheOpsThatLaunchThemElsewhere) {
  const std::vector<KernelSpan> labelled{span("n", 0, 30, 0), span("l1", 100, 140, 1),
                                         span("l2", 200, 260, 1), span("n", 300, 330, 2)};
  const std::vector<KernelSpan> captured{span("n", 1000, 1060, -1), span("l1", 1100, 1180, -1),
                                         span("l2", 1200, 1320, -1), span("n", 1400, 1460, -1),
                                         span("n", 1500, 1560, -1)};
  const KernelTimes times = time_entries_by_name(kTraced, kOrder, labelled, captured);
  ASSERT_EQ(times.entries.size(), 2u);
  EXPECT_NEAR(times.entries[0].seconds, 180e-9, 1e-15);
  EXPECT_NEAR(times.entries[1].seconds, 200e-9, 1e-15);
  EXPECT_NEAR(times.busy_seconds, 380e-9, 1e-15);
  EXPECT_NEAR(times.span_seconds, 560e-9, 1e-15);
}

TEST(KernelTimes, AKernelOfTwoOpsIsShared) {
  // The same kernel in both ops, three times as long in linear.
  const std::vector<KernelSpan> labelled{span("k", 0, 10, 0), span("k", 20, 50, 1)};
  const std::vector<KernelSpan> captured{span("k", 0, 100, -1), span("k", 200, 500, -1)};
  const KernelTimes times = time_entries_by_name(kTraced, kOrder, labelled, captured);
  EXPECT_NEAR(times.entries[0].seconds, 100e-9, 1e-15);
  EXPECT_NEAR(times.entries[1].seconds, 300e-9, 1e-15);
}

TEST(KernelTimes, KernelsThatTheTraceDoesNotHaveAreARowOfTheirOwn) {
  const std::vector<KernelSpan> labelled{span("n", 0, 10, 0)};
  const std::vector<KernelSpan> captured{span("n", 0, 10, -1), span("draw", 20, 25, -1)};
  const KernelTimes times = time_entries_by_name(kTraced, kOrder, labelled, captured);
  ASSERT_EQ(times.entries.size(), 3u);
  EXPECT_EQ(times.entries[2].op, kOtherKernels);
  EXPECT_EQ(times.entries[2].calls, 1);
  EXPECT_NEAR(times.entries[2].seconds, 5e-9, 1e-15);
  const std::vector<KernelSpan> unlabelled{span("n", 0, 10, KernelSpan::kNoCall)};
  EXPECT_THROW(time_entries_by_name(kTraced, kOrder, unlabelled, captured), Error);
}

}  // namespace
}  // namespace tessera::profile
