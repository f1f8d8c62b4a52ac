// The kernel timers on a real GPU: every kernel belongs to the op call that launched it.
#include "cuda/runtime/kernel_timer.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda/runtime/op_chain.h"
#include "support/devices.h"
#include "tessera/context.h"

namespace tessera::test {
namespace {

class CudaKernelTimerTest : public DeviceTest {
 protected:
  static constexpr std::int64_t kOps = 5;  // of a chain

  // Two runs of the same ops under a timer that has just been made.
  void check(std::unique_ptr<cuda::KernelTimer> timer, const OpChain& chain) {
    chain.run(ctx());
    chain.run(ctx());
    const std::vector<KernelSpan> spans = timer->stop();
    std::set<std::int64_t> calls;
    std::int64_t before = 0;
    for (const KernelSpan& span : spans) {
      EXPECT_GE(span.call, before) << span.name;
      EXPECT_LT(span.call, 2 * kOps) << span.name;
      EXPECT_GE(span.end_ns, span.start_ns) << span.name;
      calls.insert(span.call);
      before = span.call;
    }
    EXPECT_EQ(calls.size(), 2u * kOps);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaKernelTimerTest, testing::Values(Device::cuda()),
                         device_name);

TEST_P(CudaKernelTimerTest, ByCuptiWhereItCanBeUsed) {
  const OpChain chain(ctx(), {.rows = 3, .heads = 2, .keys = 70}, 1);
  for (int i = 0; i < 2; ++i) check(cuda::make_kernel_timer(ctx()), chain);  // and once more
  if (!cuda::why_no_cupti().empty()) GTEST_SKIP() << "by events: " << cuda::why_no_cupti();
}

TEST_P(CudaKernelTimerTest, ByEvents) {
  const OpChain chain(ctx(), {.rows = 3, .heads = 2, .keys = 70}, 1);
  check(cuda::make_event_timer(ctx()), chain);
}

}  // namespace
}  // namespace tessera::test
