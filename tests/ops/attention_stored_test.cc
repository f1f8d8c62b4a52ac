// Queries of f32 over keys and values of f16 and bf16, as a cache of half the size holds them. Only
// the CPU has such kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"
#include "tessera/attention.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

constexpr DType kStored[] = {DType::f16, DType::bf16};

TEST(AttentionStored, OddSizesAndLayouts) {
  Context ctx({.threads = 2});
  for (DType stored : kStored) {
    for (Layout layout : kLayouts) {
      for (std::int64_t n_q : {1, 5, 61}) {
        for (std::int64_t dim : {1, 33, 64}) {
          check_attention_case(ctx, {.batch = 2,
                                     .n_q = n_q,
                                     .n_k = 113,
                                     .heads = 6,
                                     .kv_heads = 3,
                                     .dim = dim,
                                     .mask = Mask::causal(),
                                     .stored = stored,
                                     .layout = layout});
        }
      }
    }
  }
}

TEST(AttentionStored, MasksChunksSoftcapAndDropout) {
  Context ctx({.threads = 2});
  for (DType stored : kStored) {
    for (std::int64_t n_q : {2, 45}) {
      for (const Mask& mask : {Mask::full(), Mask::window(300, 0), Mask::sinks(4, 200)}) {
        check_attention_case(ctx,
                             {.n_q = n_q, .n_k = 399, .dim = 16, .mask = mask, .stored = stored});
      }
      check_attention_case(ctx, {.n_q = n_q,
                                 .n_k = 131,
                                 .dim = 24,
                                 .mask = Mask::causal(),
                                 .stored = stored,
                                 .softcap = 1.5f,
                                 .dropout = {0.3f, 7}});
    }
  }
}

TEST(AttentionStored, EverySimdTarget) {
  Context ctx({.threads = 1});
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (DType stored : kStored) {
      for (std::int64_t n_q : {1, 20}) {
        check_attention_case(
            ctx, {.n_q = n_q, .n_k = 70, .dim = 40, .mask = Mask::causal(), .stored = stored});
      }
    }
  }
}

TEST(AttentionStored, RopeOnReadAgainstTheReference) {
  Context ctx({.threads = 2});
  for (DType stored : kStored) {
    for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
      for (std::int64_t dims : {2, 24, 32}) {
        for (std::int64_t n_q : {1, 30}) {
          SCOPED_TRACE(testing::Message() << name(stored) << " " << dims << " " << n_q);
          const std::vector<float> frequencies = rope_inv_freq(dims);
          Array inv_freq({dims / 2});
          std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
          const TestTensor frequency_tensor(ctx, inv_freq, DType::f32);
          AttentionTensors t(ctx, {.n_q = n_q,
                                   .n_k = 150,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .dim = 32,
                                   .mask = Mask::sinks(4, 100),
                                   .stored = stored});
          t.args.rope_on_read = {frequency_tensor, style};
          attention(ctx, t.args);
          reference::AttentionInputs in = t.inputs();
          in.inv_freq = inv_freq;
          in.rope_style = style;
          const reference::AttentionResult exact = reference::attention(in);
          EXPECT_TRUE(close(t.out.read(), exact.out, 1e-5, 2e-6));
          EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
        }
      }
    }
  }
}

TEST(AttentionStored, RefusesOtherPairsAndGradients) {
  Context ctx;
  const AttentionCase c{.n_q = 5, .n_k = 7, .dim = 4, .dtype = DType::f16, .stored = DType::f32};
  AttentionTensors wide(ctx, c);
  EXPECT_TRUE(refuses([&] { attention(ctx, wide.args); },
                      "attention: k is f32; accepted: f16, f8e4m3, i8"));
  AttentionTensors t(ctx, {.n_q = 5, .n_k = 7, .dim = 4, .stored = DType::bf16});
  AttentionArgs uneven = t.args;
  uneven.v.dtype = DType::f16;
  EXPECT_TRUE(refuses([&] { attention(ctx, uneven); }, "attention: v is f16; accepted: bf16"));
  EXPECT_TRUE(
      refuses([&] { attention_backward(ctx, {.forward = t.args}); },
              "attention_backward: k is bf16 and q is f32; gradients need both in one dtype"));
  EXPECT_TRUE(t.out.untouched() && t.lse.untouched());
}

class AttentionStoredTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionStoredTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(AttentionStoredTest, AGpuWantsOneDtype) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU takes two";
  AttentionTensors t(ctx(), {.n_q = 5, .n_k = 7, .stored = DType::f16});
  EXPECT_TRUE(refuses([&] { attention(ctx(), t.args); },
                      "attention: k is f16 and q is f32; on a GPU both must be of one dtype",
                      ErrorCode::unsupported));
  EXPECT_TRUE(t.out.untouched() && t.lse.untouched());
}

}  // namespace
}  // namespace tessera::test
