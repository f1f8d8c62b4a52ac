// The teaching kernels (examples/learn) against the float64 reference.
#include "learn.h"

#include <gtest/gtest.h>

#include "cuda/runtime/state.h"
#include "reference/attention.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class LearnTest : public DeviceTest {
 protected:
  // Runs a step twice, and compares it with the reference and with itself.
  void check(const learn::Step& step, int heads, int tokens, bool causal) {
    SCOPED_TRACE(std::string(step.name) + ", " + std::to_string(tokens) + " tokens" +
                 (causal ? ", causal" : ""));
    const std::vector<std::int64_t> shape{heads, tokens, 1, learn::kDim};
    const TestTensor q(ctx(), random_normal(shape, 1, 2.0), DType::f16);
    const TestTensor k(ctx(), random_normal(shape, 2), DType::f16);
    const TestTensor v(ctx(), random_normal(shape, 3), DType::f16);
    const TestTensor scores = TestTensor::poisoned(ctx(), {heads, tokens, tokens}, DType::f32);
    const reference::AttentionResult exact =
        reference::attention({.q = q.read(),
                              .k = k.read(),
                              .v = v.read(),
                              .mask = causal ? Mask::causal() : Mask::full()});
    Array first;
    for (int run = 0; run < 2; ++run) {
      const TestTensor out = TestTensor::poisoned(ctx(), shape, DType::f16);
      step.run(ctx(), {.q = q.view().ptr<const __half>(),
                       .k = k.view().ptr<const __half>(),
                       .v = v.view().ptr<const __half>(),
                       .out = out.view().ptr<__half>(),
                       .scores = step.stores_scores ? scores.view().ptr<float>() : nullptr,
                       .heads = heads,
                       .tokens = tokens,
                       .causal = causal});
      // Weights are rounded to f16 before the tensor cores, and so is the output.
      EXPECT_TRUE(close(out.read(), exact.out, 2e-3, 2e-3));
      EXPECT_TRUE(out.surroundings_intact());
      if (run == 0) first = out.read();
      EXPECT_TRUE(identical(out.read(), first));
    }
  }

  bool can_run(const learn::Step& step) {
    return step.runs_on(cuda::state_of(ctx()).limits().capability);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, LearnTest, testing::Values(Device::cuda()), device_name);

TEST_P(LearnTest, EveryStepIsRightOnWholeTilesAndOddLengths) {
  for (const learn::Step& step : learn::steps()) {
    for (const int tokens : {1, 63, 64, 65, 150}) {
      if (can_run(step)) check(step, 2, tokens, false);
    }
  }
}

TEST_P(LearnTest, StepsThatKnowTheCausalMaskFollowIt) {
  int known = 0;
  for (const learn::Step& step : learn::steps()) {
    if (!step.causal || !can_run(step)) continue;
    ++known;
    for (const int tokens : {1, 64, 129, 150}) check(step, 3, tokens, true);
  }
  EXPECT_GE(known, 3);
}

// Scores that differ by much: the running maximum moves from tile to tile.
TEST_P(LearnTest, LateLargeScores) {
  constexpr int kTokens = 200;
  for (const learn::Step& step : learn::steps()) {
    if (!can_run(step)) continue;
    SCOPED_TRACE(step.name);
    const std::vector<std::int64_t> shape{1, kTokens, 1, learn::kDim};
    Array keys = random_normal(shape, 2);
    for (int key = 0; key < kTokens; ++key) {
      for (int d = 0; d < learn::kDim; ++d) keys.at(0, key, 0, d) *= 0.05 * key;
    }
    const TestTensor q(ctx(), random_normal(shape, 1, 2.0), DType::f16);
    const TestTensor k(ctx(), keys, DType::f16), v(ctx(), random_normal(shape, 3), DType::f16);
    const TestTensor scores = TestTensor::poisoned(ctx(), {1, kTokens, kTokens}, DType::f32);
    const TestTensor out = TestTensor::poisoned(ctx(), shape, DType::f16);
    step.run(ctx(), {.q = q.view().ptr<const __half>(),
                     .k = k.view().ptr<const __half>(),
                     .v = v.view().ptr<const __half>(),
                     .out = out.view().ptr<__half>(),
                     .scores = scores.view().ptr<float>(),
                     .heads = 1,
                     .tokens = kTokens,
                     .causal = false});
    const auto exact =
        reference::attention({.q = q.read(), .k = k.read(), .v = v.read(), .mask = Mask::full()});
    EXPECT_TRUE(close(out.read(), exact.out, 4e-3, 4e-3));
  }
}

}  // namespace
}  // namespace tessera::test
