// What a call leaves in the trace, and how much memory it takes.
#include <gtest/gtest.h>

#include <utility>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

class AttentionCallTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionCallTest, testing::ValuesIn(test_devices()),
                         device_name);

// ---- trace -------------------------------------------------------------------------------------

TEST_P(AttentionCallTest, IsTraced) {
  AttentionTensors t(ctx(), {.batch = 2,
                             .n_q = 40,
                             .n_k = 50,
                             .heads = 4,
                             .kv_heads = 2,
                             .dim = 8,
                             .mask = Mask::causal(),
                             .dtype = DType::f16});
  attention(ctx(), t.args);
  const bool cpu = GetParam().is_cpu();
  // Which kernel a GPU runs depends on the GPU (tests/cuda/attention_test.cc).
  ASSERT_EQ(ctx().trace().calls("attention", cpu ? "cpu.prefill" : ""), 1);
  const TraceEntry entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "q f16[2, 40, 4, 8] k f16[2, 50, 2, 8] causal");
  EXPECT_EQ(entry.bytes, 2 * (2 * 2 * 40 * 32 + 2 * 2 * 50 * 16) + 4 * 2 * 4 * 40);
  // Query i sees 11 + i keys.
  EXPECT_EQ(entry.flops, 4 * 8 * 2 * 4 * (40 * 11 + 40 * 39 / 2));
  t.args.lse = {};
  t.args.softcap = 3.f;
  t.args.dropout.p = 0.5f;
  t.args.q = t.args.q.slice(1, 0, 3);
  t.args.out = t.args.out.slice(1, 0, 3);
  attention(ctx(), t.args);
  EXPECT_EQ(ctx().trace().calls("attention", cpu ? "cpu.decode" : ""), cpu ? 1 : 2);
  EXPECT_TRUE(ctx().trace().entries().back().shapes.ends_with("causal softcap dropout"));
}

TEST_P(AttentionCallTest, CountsTheFlopsOfVisiblePairs) {
  for (const auto& [n_q, n_k] : {std::pair{33, 33}, {20, 45}, {45, 20}, {1, 70}}) {
    for (const Mask& mask : every_mask(n_q, n_k)) {
      SCOPED_TRACE(mask.to_string());
      AttentionTensors t(
          ctx(), {.n_q = n_q, .n_k = n_k, .heads = 1, .kv_heads = 1, .dim = 2, .mask = mask});
      ctx().trace().clear();
      attention(ctx(), t.args);
      std::int64_t pairs = 0;
      for (std::int64_t i = 0; i < n_q; ++i) {
        for (std::int64_t j = 0; j < n_k; ++j) {
          pairs += reference::sees(mask, i, i + n_k - n_q, j);
        }
      }
      EXPECT_EQ(ctx().trace().entries().front().flops, 4 * 2 * pairs);
    }
  }
}

// ---- memory ------------------------------------------------------------------------------------

TEST_P(AttentionCallTest, MemoryDoesNotGrowWithTheSquareOfTheLength) {
  constexpr std::int64_t kLength = kSanitized ? 8192 : 16384;
  const TestTensor q(ctx(), Array({1, kLength, 1, 64}, 0.5), DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx(), {1, kLength, 1, 64}, DType::f32);
  const Mask masks[] = {Mask::causal(), Mask::sinks(4, 300),
                        Mask::blocks(BlockMask::local(64, kLength / 64, kLength / 64, 1), true)};
  for (const Mask& mask : masks) {
    attention(ctx(), {.q = q, .k = q, .v = q, .out = out, .mask = mask});
    EXPECT_NEAR(out.read().at(0, kLength - 1, 0, 63), 0.5, 1e-5);
  }
  EXPECT_GT(ctx().workspace_peak_bytes(), 0);
  // 64 MB is the promise; the scores alone would take 1 GB (of half the length, a quarter). Tiles
  // take far less than either.
  EXPECT_LT(ctx().workspace_peak_bytes(), 2 << 20);
}

TEST_P(AttentionCallTest, TakesNoMemoryTheSecondTime) {
  AttentionTensors t(ctx(), {.n_q = 200, .n_k = 1023, .mask = Mask::causal()});
  attention(ctx(), t.args);
  attention(ctx(), t.args);
  const std::int64_t held = ctx().workspace_bytes();
  attention(ctx(), t.args);
  EXPECT_EQ(ctx().workspace_bytes(), held);
}

}  // namespace
}  // namespace tessera::test
