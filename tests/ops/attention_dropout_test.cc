// Dropout: the very weights that Philox names are dropped, whatever the path, and as many as asked.
#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/sanitizers.h"
#include "support/simd_targets.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

class AttentionDropoutTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionDropoutTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(AttentionDropoutTest, DropsTheWeightsThatPhiloxNames) {
  Thinned thinned(5);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (float p : {0.1f, 0.5f, 0.9f}) {
      for (std::int64_t n_q : {1, 3, 113}) {
        for (const Mask& mask : {Mask::causal(), Mask::sinks(3, 50)}) {
          if (!thinned.takes_next()) continue;
          check_attention_case(ctx(), {.batch = 2,
                                       .n_q = n_q,
                                       .n_k = 299,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .dim = 16,
                                       .mask = mask,
                                       .dtype = dtype,
                                       .dropout = {p, 0x123456789abcdefull}});
        }
      }
    }
  }
}

// With equal scores and values of one the output is the kept weights' sum: each weight is 1 / n,
// and kept / (1 - p) of them come back. One element of V per key shows which.
TEST_P(AttentionDropoutTest, ShowsEveryDecisionExactly) {
  constexpr std::int64_t kKeys = 128;
  for (std::int64_t n_q : {2, 40}) {
    const Array zeros({1, n_q, 1, kKeys});
    Array identity({1, kKeys, 1, kKeys});
    for (std::int64_t j = 0; j < kKeys; ++j) identity.at(0, j, 0, j) = 1.0;
    TestTensor q(ctx(), zeros, DType::f32), k(ctx(), Array({1, kKeys, 1, kKeys}), DType::f32);
    TestTensor v(ctx(), identity, DType::f32);
    TestTensor out = TestTensor::poisoned(ctx(), {1, n_q, 1, kKeys}, DType::f32);
    const Dropout dropout{0.25f, 42};
    attention(ctx(), {.q = q, .k = k, .v = v, .out = out, .dropout = dropout});
    const Array weights = out.read();
    for (std::int64_t i = 0; i < n_q; ++i) {
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const PhiloxWords words =
            dropout_words(42, 0, 0, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j));
        const bool kept = words[j % 4] >= dropout_threshold(0.25f);
        ASSERT_NEAR(weights.at(0, i, 0, j), kept ? 1.0 / (0.75 * kKeys) : 0.0, 1e-9);
      }
    }
  }
}

TEST_P(AttentionDropoutTest, DropsTheShareThatIsAsked) {
  constexpr std::int64_t kQueries = 60, kKeys = 256;
  for (double p : {0.1, 0.5, 0.8}) {
    for (std::uint64_t seed : {1, 2}) {
      TestTensor q(ctx(), Array({1, kQueries, 2, 8}), DType::f32);
      TestTensor k(ctx(), Array({1, kKeys, 2, 8}), DType::f32);
      TestTensor v(ctx(), Array({1, kKeys, 2, 8}, 1.0), DType::f32);
      TestTensor out = TestTensor::poisoned(ctx(), {1, kQueries, 2, 8}, DType::f32);
      attention(ctx(),
                {.q = q, .k = k, .v = v, .out = out, .dropout = {static_cast<float>(p), seed}});
      const Array result = out.read();
      double mean = 0;
      for (double x : result.data) mean += x / static_cast<double>(result.numel());
      // Each output is the kept share over (1 - p): the mean is 1, with the deviation of n draws.
      const double n = kQueries * kKeys * 2, deviation = std::sqrt(p / (1 - p) / n);
      EXPECT_NEAR(mean, 1.0, 4 * deviation);
    }
  }
}

TEST_P(AttentionDropoutTest, LeavesTheLogSumExpAlone) {
  const AttentionCase c{.n_q = 50, .mask = Mask::causal()};
  AttentionTensors without(ctx(), c), with(ctx(), c);
  with.args.dropout = {0.5f, 3};
  attention(ctx(), without.args);
  attention(ctx(), with.args);
  EXPECT_TRUE(identical(without.lse.read(), with.lse.read()));
  EXPECT_FALSE(identical(without.out.read(), with.out.read()));
}

TEST_P(AttentionDropoutTest, SeedsDiffer) {
  const AttentionCase c{.n_q = 20};
  AttentionTensors a(ctx(), c), b(ctx(), c);
  a.args.dropout = {0.5f, 3};
  b.args.dropout = {0.5f, 3ull << 32};  // the high half counts as well
  attention(ctx(), a.args);
  attention(ctx(), b.args);
  EXPECT_FALSE(identical(a.out.read(), b.out.read()));
}

TEST(AttentionSimd, EveryTargetDropsTheSame) {
  Context ctx({.threads = 2});
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (std::int64_t n_q : {1, 45}) {
      check_attention_case(
          ctx, {.n_q = n_q, .n_k = 299, .dim = 16, .mask = Mask::causal(), .dropout = {0.3f, 6}});
    }
  }
}

}  // namespace
}  // namespace tessera::test
