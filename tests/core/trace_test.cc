// What a trace keeps: entries by call, by layer, and the host's work beside the ops.
#include "tessera/trace.h"

#include <gtest/gtest.h>

#include "core/traced_work.h"

namespace tessera {
namespace {

TraceEntry one_call(const char* op) {
  return {.op = op, .kernel = "cpu", .shapes = "x", .calls = 1, .seconds = 0.5};
}

TEST(Trace, CallsThatAreAlikeAreOneEntry) {
  Trace trace;
  for (const char* op : {"a", "b", "a"}) trace.record(one_call(op));
  ASSERT_EQ(trace.entries().size(), 2u);
  EXPECT_EQ(trace.entries()[0].calls, 2);
  EXPECT_EQ(trace.entries()[0].seconds, 1.0);
  EXPECT_EQ(trace.calls("a"), 2);
}

TEST(Trace, LayersAreApartOnlyIfAsked) {
  Trace trace;
  for (const bool apart : {false, true}) {
    trace.clear();
    trace.separate_layers(apart);
    for (const std::int64_t layer : {0, 1, 0}) {
      trace.enter_layer(layer);
      trace.record(one_call("a"));
    }
    EXPECT_EQ(trace.entries().size(), apart ? 2u : 1u);
    EXPECT_EQ(trace.entries().back().layer, apart ? 1 : TraceEntry::kNoLayer);
  }
}

TEST(Trace, OverheadIsCountedUntilCleared) {
  Trace trace;
  trace.add_overhead(0.25);
  trace.add_overhead(0.5);
  EXPECT_EQ(trace.overhead_seconds(), 0.75);
  trace.clear();
  EXPECT_EQ(trace.overhead_seconds(), 0);
}

TEST(TracedWork, IsAnEntryOfItsOwnWithTracingOn) {
  Trace trace;
  { const TracedWork off(trace, "draw"); }
  EXPECT_TRUE(trace.entries().empty());
  trace.enable();
  {
    TracedWork work(trace, "schedule");
    work.end();
    work.end();  // counts once
    work.begin("schedule");
  }
  ASSERT_EQ(trace.entries().size(), 1u);
  EXPECT_EQ(trace.entries()[0].kernel, "host");
  EXPECT_EQ(trace.entries()[0].calls, 2);
  EXPECT_GE(trace.entries()[0].seconds, 0);
}

}  // namespace
}  // namespace tessera
