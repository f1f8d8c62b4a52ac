// Dense attention against its float64 twin: every mask, size, head dim, dtype and layout.
#include "tessera/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

class AttentionTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(AttentionTest, EveryMaskAtOddSizes) {
  // Fewer queries than keys, as many, and more: then the first queries of a causal mask see
  // nothing.
  const std::int64_t sizes[][2] = {{1, 1},     {1, 239},   {3, 3},     {3, 113},
                                   {113, 3},   {113, 113}, {113, 239}, {239, 113},
                                   {239, 239}, {64, 128},  {17, 1}};
  for (const auto& [n_q, n_k] : sizes) {
    for (const Mask& mask : every_mask(n_q, n_k)) {
      check_attention_case(
          ctx(), {.n_q = n_q, .n_k = n_k, .heads = 1, .kv_heads = 1, .dim = 8, .mask = mask});
    }
  }
}

TEST_P(AttentionTest, HeadDims) {
  for (std::int64_t dim : {1, 2, 8, 37, 64, 80, 96, 128, 255, 256}) {
    for (std::int64_t n_q : {3, 50}) {  // decode, prefill
      check_attention_case(ctx(), {.n_q = n_q, .n_k = 113, .dim = dim, .mask = Mask::causal()});
    }
  }
}

TEST_P(AttentionTest, GroupedHeads) {
  for (std::int64_t kv_heads : {1, 2, 3, 6, 12}) {
    for (std::int64_t n_q : {1, 2, 45}) {
      for (const Mask& mask : {Mask::causal(), Mask::window(20, 4), Mask::sinks(3, 30)}) {
        check_attention_case(ctx(), {.batch = 2,
                                     .n_q = n_q,
                                     .n_k = 113,
                                     .heads = 12,
                                     .kv_heads = kv_heads,
                                     .dim = 16,
                                     .mask = mask});
      }
    }
  }
  // One query of many heads: more rows than a prefill tile has.
  check_attention_case(ctx(), {.n_q = 1, .n_k = 70, .heads = 150, .kv_heads = 1, .dim = 8});
  check_attention_case(ctx(), {.n_q = 2, .n_k = 70, .heads = 150, .kv_heads = 1, .dim = 8});
}

TEST_P(AttentionTest, DtypesAndLayouts) {
  for (DType dtype : kFloats) {
    for (Layout layout : kLayouts) {
      for (std::int64_t n_q : {1, 5, 61}) {
        for (std::int64_t dim : {33, 64}) {
          check_attention_case(ctx(), {.batch = 2,
                                       .n_q = n_q,
                                       .n_k = 113,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .dim = dim,
                                       .mask = Mask::causal(),
                                       .dtype = dtype,
                                       .layout = layout});
        }
      }
    }
  }
}

TEST_P(AttentionTest, EveryMaskInLowPrecision) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (std::int64_t n_q : {4, 113}) {
      for (const Mask& mask : every_mask(n_q, 113)) {
        check_attention_case(ctx(), {.n_q = n_q, .dim = 16, .mask = mask, .dtype = dtype});
      }
    }
  }
}

// Longer than one decode chunk (128 keys), so that partial results are merged.
TEST_P(AttentionTest, DecodeOverManyChunks) {
  for (std::int64_t n_k : {128, 129, 799, 1023}) {
    for (DType dtype : kFloats) {
      for (const Mask& mask :
           {Mask::causal(), Mask::window(300, 0), Mask::sinks(4, 200), Mask::window(5, 0)}) {
        check_attention_case(ctx(), {.n_q = 2,
                                     .n_k = n_k,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .dim = 64,
                                     .mask = mask,
                                     .dtype = dtype});
      }
    }
  }
}

TEST_P(AttentionTest, ScaleAndSoftcap) {
  for (DType dtype : kFloats) {
    for (float scale : {0.f, 0.3f, -0.2f}) {
      for (float softcap : {0.f, 1.5f, 30.f}) {
        for (std::int64_t n_q : {2, 45}) {
          check_attention_case(ctx(), {.n_q = n_q,
                                       .n_k = 70,
                                       .dim = 32,
                                       .mask = Mask::causal(),
                                       .dtype = dtype,
                                       .scale = scale,
                                       .softcap = softcap});
        }
      }
    }
  }
}

// Scores of several hundred: exponentials of them do not fit into f32. The sum of a dot product of
// such size is good to its last bits only, so weights are compared by the field's rule.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  for (DType dtype : kFloats) {
    for (std::int64_t n_q : {2, 45}) {
      const AttentionCase c{.n_q = n_q,
                            .n_k = 113,
                            .dim = 64,
                            .mask = Mask::causal(),
                            .dtype = dtype,
                            .scale = 1.f,
                            .spread = 8.0};
      AttentionTensors t(ctx(), c);
      attention(ctx(), t.args);
      const reference::AttentionResult exact = reference::attention(t.inputs());
      EXPECT_TRUE(good(t.out.read(), exact.out, plain_attention(t.inputs(), dtype)));
      EXPECT_TRUE(close(t.lse.read(), exact.lse, 1e-6, 0));
      EXPECT_GT(exact.lse.at(0, 0, n_q - 1), 500);
    }
  }
}

TEST_P(AttentionTest, FullyMaskedRowsAreZeros) {
  for (std::int64_t n_q : {7, 90}) {
    for (DType dtype : kFloats) {
      AttentionTensors t(ctx(), {.n_q = n_q, .n_k = 5, .mask = Mask::causal(), .dtype = dtype});
      attention(ctx(), t.args);
      const Array out = t.out.read(), lse = t.lse.read();
      for (std::int64_t i = 0; i < n_q; ++i) {
        for (std::int64_t h = 0; h < 2; ++h) {
          const bool masked = i < n_q - 5;
          EXPECT_EQ(lse.at(0, h, i) == -INFINITY, masked);
          EXPECT_EQ(out.at(0, i, h, 0) == 0.0, masked);
        }
      }
    }
  }
}

TEST_P(AttentionTest, NoKeysGiveZeros) {
  for (std::int64_t n_q : {1, 40}) {
    AttentionTensors t(ctx(), {.n_q = n_q, .n_k = 0});
    attention(ctx(), t.args);
    EXPECT_TRUE(identical(t.out.read(), Array({1, n_q, 2, 64}, 0.0)));
    EXPECT_TRUE(identical(t.lse.read(), Array({1, 2, n_q}, -INFINITY)));
  }
}

TEST_P(AttentionTest, NoQueriesAreNoWork) {
  for (const AttentionCase& c : {AttentionCase{.n_q = 0}, AttentionCase{.batch = 0}}) {
    AttentionTensors t(ctx(), c);
    attention(ctx(), t.args);
    EXPECT_TRUE(t.out.untouched() && t.lse.untouched());
  }
}

// A NaN among the inputs must be seen in the rows that depend on it, and in no other.
TEST_P(AttentionTest, NanShowsInItsRows) {
  for (std::int64_t n_q : {4, 70}) {
    const AttentionCase c{.n_q = n_q, .n_k = 70, .heads = 1, .kv_heads = 1, .mask = Mask::causal()};
    AttentionTensors t(ctx(), c);
    Array keys = t.k.read();
    keys.at(0, 68, 0, 5) = NAN;
    const TestTensor k(ctx(), keys, DType::f32);
    t.args.k = k;
    attention(ctx(), t.args);
    const Array out = t.out.read();
    for (std::int64_t i = 0; i < n_q; ++i) {
      EXPECT_EQ(std::isnan(out.at(0, i, 0, 0)), i + (70 - n_q) >= 68) << i;
    }
  }
}

TEST_P(AttentionTest, SparseMasksVisitTheirTilesOnly) {
  for (std::int64_t block : {16, 32, 64, 128}) {
    for (const BlockMask& pattern :
         {BlockMask::local(block, 6, 6, 0), BlockMask::strided(block, 6, 6, 1, 5)}) {
      const AttentionCase c{.n_q = 6 * block,
                            .n_k = 6 * block,
                            .heads = 1,
                            .kv_heads = 1,
                            .dim = 16,
                            .mask = Mask::blocks(pattern)};
      check_hidden_blocks_stay_unread(ctx(), c, pattern, block);
    }
  }
}

TEST_P(AttentionTest, SameBitsTwiceAndForAnyThreadCount) {
  for (DType dtype : kFloats) {
    for (std::int64_t n_q : {2, 61, 333}) {
      const AttentionCase c{.batch = 2,
                            .n_q = n_q,
                            .n_k = 799,
                            .heads = 6,
                            .kv_heads = 2,
                            .dim = 48,
                            .mask = Mask::causal(),
                            .dtype = dtype};
      const auto one = context(1), three = context(3);
      AttentionTensors a(*one, c), b(*three, c), again(*three, c);
      attention(*one, a.args);
      attention(*three, b.args);
      attention(*three, again.args);
      for (const AttentionTensors* other : {&b, &again}) {
        EXPECT_TRUE(identical(a.out.read(), other->out.read()));
        EXPECT_TRUE(identical(a.lse.read(), other->lse.read()));
      }
    }
  }
}

TEST(AttentionSimd, EveryTarget) {
  Context ctx({.threads = 2});
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (DType dtype : kFloats) {
      for (std::int64_t dim : {19, 64, 80}) {
        for (std::int64_t n_q : {1, 6, 45}) {
          check_attention_case(ctx, {.n_q = n_q,
                                     .n_k = 299,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .dim = dim,
                                     .mask = Mask::sinks(4, 77),
                                     .dtype = dtype,
                                     .softcap = 20.f,
                                     .dropout = {0.2f, 5}});
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
