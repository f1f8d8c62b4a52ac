// Ops beside each other on two streams of one Context (core/branch.h).
#include "core/branch.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/captured_graph.h"
#include "core/cuda_runtime.h"
#include "cuda/order/late_write.h"
#include "cuda/runtime/int_buffers.h"
#include "cuda/runtime/op_chain.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class BranchTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    ctx().trace().enable(false);
  }

  static void run_beside(Context& ctx, const OpChain& branch, const OpChain& own) {
    Branch beside(ctx);
    branch.run(ctx);
    beside.end();
    own.run(ctx);
    beside.join();
  }
  Buffer filled(std::int32_t value) { return filled_buffer(ctx(), kN, value); }
  std::vector<std::int32_t> read(const Buffer& buffer) { return read_buffer(ctx(), buffer); }

  static constexpr std::int64_t kN = 1 << 12, kBytes = 4 * kN;
};
INSTANTIATE_TEST_SUITE_P(Devices, BranchTest, testing::Values(Device::cuda()), device_name);

// Products of few and of many rows and attention with split keys on either stream: all of them use
// scratch and counters.
constexpr ChainSizes kFew{.rows = 1, .heads = 2, .keys = 600};
constexpr ChainSizes kMore{.rows = 24, .heads = 4, .keys = 300};

TEST_P(BranchTest, BothSidesGiveTheBitsThatTheyGiveAlone) {
  const OpChain few(ctx(), kFew, 11), more(ctx(), kMore, 12);
  for (int round = 0; round < 40; ++round) {
    const int i = round % OpChain::kInputs, other = (round + 2) % OpChain::kInputs;
    few.set_input(ctx(), i);
    more.set_input(ctx(), other);
    round % 2 == 0 ? run_beside(ctx(), few, more) : run_beside(ctx(), more, few);
    ASSERT_EQ(few.result(ctx()), few.expected(i)) << "round " << round;
    ASSERT_EQ(more.result(ctx()), more.expected(other)) << "round " << round;
  }
  EXPECT_NO_THROW(cuda::check_counters(*ctx().backend_state()));
}

TEST_P(BranchTest, ACapturedGraphHasBothStreams) {
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) GTEST_SKIP() << "an emulated GPU";
  const OpChain few(ctx(), kFew, 13), more(ctx(), kMore, 14);
  run_beside(ctx(), few, more);
  const CapturedGraph graph = capture(ctx(), [&] { run_beside(ctx(), few, more); });
  for (int i = 0; i < OpChain::kInputs; ++i) {
    few.set_input(ctx(), i);
    more.set_input(ctx(), i);
    graph.launch(ctx());
    EXPECT_EQ(few.result(ctx()), few.expected(i)) << "input " << i;
    EXPECT_EQ(more.result(ctx()), more.expected(i)) << "input " << i;
  }
}

TEST_P(BranchTest, ComesBehindWhatWasThereAndAheadOfWhatFollows) {
  const Buffer first = filled(0), second = filled(0), third = filled(0);
  for (const std::int32_t value : {3, 4, 5}) {
    const Buffer from = filled(value);
    write_late(ctx(), from.data(), first.data(), kBytes);
    Branch beside(ctx());
    write_late(ctx(), first.data(), second.data(), kBytes);
    beside.end();
    beside.join();
    write_late(ctx(), second.data(), third.data(), kBytes);
    EXPECT_EQ(read(third), std::vector<std::int32_t>(kN, value));
  }
}

// Whoever leaves a branch by an exception leaves the Context as it was.
TEST_P(BranchTest, AnExceptionEndsIt) {
  void* const stream = ctx().stream();
  const Buffer from = filled(6), to = filled(0);
  EXPECT_THROW(
      {
        Branch beside(ctx());
        EXPECT_NE(ctx().stream(), stream);
        write_late(ctx(), from.data(), to.data(), kBytes);
        throw std::runtime_error("on the way");
      },
      std::runtime_error);
  EXPECT_EQ(ctx().stream(), stream);
  EXPECT_EQ(read(to), std::vector<std::int32_t>(kN, 6));
}

TEST_P(BranchTest, NoneIsWantedThenNothingChanges) {
  void* const stream = ctx().stream();
  Branch beside(ctx(), false);
  EXPECT_EQ(ctx().stream(), stream);
  beside.end();
  beside.join();
}

}  // namespace
}  // namespace tessera::test
