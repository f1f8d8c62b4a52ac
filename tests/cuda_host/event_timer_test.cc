// The kernel timer by events, on a fake GPU whose clock ticks once, a microsecond, for each event.
#include <gtest/gtest.h>

#include <string>

#include "cuda/runtime/kernel_timer.h"
#include "cuda/runtime/op_names.h"
#include "cuda_host/fake_cuda_test.h"
#include "ops/op_scope.h"

namespace tessera::test {
namespace {

class HostEventTimer : public FakeContextTest {
 protected:
  void run_op(const char* name) {
    const OpScope op(*ctx_, name);
    op.run([] { return std::string("x"); }, [] { return "cuda"; }, [] { return OpCost{}; });
  }
};

TEST_F(HostEventTimer, EachOpHasASpanInTheOrderOfCalls) {
  const auto timer = cuda::make_event_timer(*ctx_);
  run_op("norm");
  run_op("linear");
  const std::vector<KernelSpan> spans = timer->stop();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].call, 0);
  EXPECT_EQ(spans[0].start_ns, 0);
  EXPECT_EQ(spans[0].end_ns, 1000);
  EXPECT_EQ(spans[1].call, 1);
  EXPECT_EQ(spans[1].start_ns, 2000);
  EXPECT_EQ(spans[1].end_ns, 3000);
}

TEST_F(HostEventTimer, NothingIsTimedAfterItsEnd) {
  const auto timer = cuda::make_event_timer(*ctx_);
  run_op("norm");
  EXPECT_EQ(timer->stop().size(), 1u);
  run_op("norm");
  EXPECT_EQ(timer->stop().size(), 1u);
  EXPECT_EQ(cuda::set_op_listener(nullptr), nullptr);
}

TEST_F(HostEventTimer, AnEventThatFailsDoesNotFailTheOpButTheTimer) {
  const auto timer = cuda::make_event_timer(*ctx_);
  fake::fail_once("cudaEventRecord", cudaErrorInvalidValue);
  run_op("norm");
  const Error error = error_of([&] { timer->stop(); });
  EXPECT_EQ(error.code(), ErrorCode::device);
  EXPECT_TRUE(std::string(error.what()).starts_with("events for timing failed")) << error.what();
}

}  // namespace
}  // namespace tessera::test
