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

TEST(KernelTimes, CapturedStepsGetTheCallsOfOneThatWasNot) {
  const std::vector<KernelSpan> step{span("n", 0, 1, 0), span("l1", 2, 3, 1), span("l2", 4, 5, 1)};
  const std::vector<KernelSpan> captured{span("n", 10, 11, -1),  span("l1", 12, 13, -1),
                                         span("l2", 14, 15, -1), span("n", 20, 21, -1),
                                         span("l1", 22, 23, -1), span("l2", 24, 25, -1)};
  const std::vector<KernelSpan> labelled = label_captured(captured, step);
  std::vector<std::int64_t> calls;
  for (const KernelSpan& one : labelled) calls.push_back(one.call);
  EXPECT_EQ(calls, (std::vector<std::int64_t>{0, 1, 1, 2, 3, 3}));
}

TEST(KernelTimes, RefusesCapturedStepsOfOtherKernels) {
  const std::vector<KernelSpan> step{span("n", 0, 1, 0), span("l1", 2, 3, 1)};
  EXPECT_THROW(label_captured({span("n", 0, 1, -1), span("other", 2, 3, -1)}, step), Error);
  EXPECT_THROW(label_captured({span("n", 0, 1, -1)}, step), Error);
  EXPECT_THROW(label_captured({span("n", 0, 1, -1)}, {}), Error);
}

}  // namespace
}  // namespace tessera::profile
