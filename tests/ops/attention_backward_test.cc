#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/sanitizers.h"
#include "support/simd_targets.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

class AttentionBackwardTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionBackwardTest, testing::ValuesIn(test_devices()),
                         device_name);

// A forward call that has run, and its gradients.
struct Gradients {
  Gradients(Context& ctx, const AttentionCase& c)
      : forward(ctx, c),
        d_out(ctx, random_normal({c.batch, c.n_q, c.heads, c.dim}, 4), c.dtype, c.layout),
        d_q(TestTensor::poisoned(ctx, {c.batch, c.n_q, c.heads, c.dim}, c.dtype, c.layout)),
        d_k(TestTensor::poisoned(ctx, {c.batch, c.n_k, c.kv_heads, c.dim}, c.dtype, c.layout)),
        d_v(TestTensor::poisoned(ctx, {c.batch, c.n_k, c.kv_heads, c.dim}, c.dtype, c.layout)),
        args{forward.args, d_out, d_q, d_k, d_v} {
    attention(ctx, forward.args);
  }

  AttentionTensors forward;
  TestTensor d_out, d_q, d_k, d_v;
  AttentionBackwardArgs args;
};

// As good as plain, with room for weights that are computed again from the log-sum-exp: exponent
// and lse, of magnitude up to 8, are rounded to f32 each, and the weights are off by as much
// relatively.
testing::AssertionResult good_gradient(const Array& actual, const Array& exact,
                                       const Array& plain) {
  return as_good_as(actual, exact, plain, 2 * 8 * epsilon(DType::f32));
}

// By every kernel that can run the call.
void check_backward(Context& ctx, const AttentionCase& c) {
  SCOPED_TRACE(c.text());
  Gradients g(ctx, c);
  const Array out = g.forward.out.read(), lse = g.forward.lse.read();
  const reference::AttentionInputs in = g.forward.inputs();
  const Array d_out = g.d_out.read();
  const reference::AttentionGradients exact = reference::attention_backward(in, d_out);
  const reference::AttentionGradients plain = plain_attention_backward(in, d_out, c.dtype);
  for (const std::string& kernel : backward_kernels(ctx, g.args)) {
    SCOPED_TRACE("kernel " + kernel);
    for (TestTensor* gradient : {&g.d_q, &g.d_k, &g.d_v}) gradient->restore();
    run_backward(ctx, kernel, g.args);
    EXPECT_TRUE(good_gradient(g.d_q.read(), exact.d_q, plain.d_q));
    EXPECT_TRUE(good_gradient(g.d_k.read(), exact.d_k, plain.d_k));
    EXPECT_TRUE(good_gradient(g.d_v.read(), exact.d_v, plain.d_v));
    for (const TestTensor* gradient : {&g.d_q, &g.d_k, &g.d_v}) {
      EXPECT_TRUE(gradient->surroundings_intact());
    }
    EXPECT_TRUE(g.forward.q.untouched() && g.forward.k.untouched() && g.forward.v.untouched());
    EXPECT_TRUE(g.d_out.untouched());
    EXPECT_TRUE(identical(out, g.forward.out.read()) && identical(lse, g.forward.lse.read()));
  }
}

TEST_P(AttentionBackwardTest, EveryMaskAtOddSizes) {
  const std::int64_t sizes[][2] = {{1, 1},     {1, 113},  {3, 3},    {113, 3},
                                   {113, 113}, {50, 239}, {239, 130}};
  for (const auto& [n_q, n_k] : sizes) {
    for (const Mask& mask : every_mask(n_q, n_k)) {
      check_backward(ctx(),
                     {.n_q = n_q, .n_k = n_k, .heads = 1, .kv_heads = 1, .dim = 8, .mask = mask});
    }
  }
}

TEST_P(AttentionBackwardTest, HeadDims) {
  for (std::int64_t dim : {1, 2, 37, 64, 80, 96, 128, 255, 256}) {
    check_backward(
        ctx(),
        {.n_q = 40, .n_k = 70, .heads = 1, .kv_heads = 1, .dim = dim, .mask = Mask::causal()});
  }
}

TEST_P(AttentionBackwardTest, GroupedHeads) {
  for (std::int64_t kv_heads : {1, 2, 3, 6}) {
    for (std::int64_t n_q : {1, 45}) {
      check_backward(ctx(), {.batch = 2,
                             .n_q = n_q,
                             .n_k = 70,
                             .heads = 6,
                             .kv_heads = kv_heads,
                             .dim = 16,
                             .mask = Mask::causal()});
    }
  }
}

TEST_P(AttentionBackwardTest, DtypesAndLayouts) {
  for (DType dtype : kFloats) {
    for (Layout layout : kLayouts) {
      for (std::int64_t dim : {33, 64}) {
        check_backward(ctx(), {.batch = 2,
                               .n_q = 61,
                               .n_k = 70,
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

TEST_P(AttentionBackwardTest, ScaleSoftcapAndDropout) {
  for (DType dtype : kFloats) {
    for (float softcap : {0.f, 2.f, 30.f}) {
      for (float p : {0.f, 0.3f}) {
        for (const Mask& mask : {Mask::full(), Mask::window(30, 5), Mask::sinks(2, 20)}) {
          check_backward(ctx(), {.n_q = 45,
                                 .n_k = 70,
                                 .dim = 32,
                                 .mask = mask,
                                 .dtype = dtype,
                                 .scale = 0.2f,
                                 .softcap = softcap,
                                 .dropout = {p, 77}});
        }
      }
    }
  }
}

// Longer than one query tile, and than several key tiles.
TEST_P(AttentionBackwardTest, ManyTiles) {
  check_backward(
      ctx(),
      {.n_q = 333, .n_k = 333, .heads = 1, .kv_heads = 1, .dim = 32, .mask = Mask::causal()});
  check_backward(ctx(), {.n_q = 333,
                         .n_k = 399,
                         .heads = 2,
                         .kv_heads = 1,
                         .dim = 32,
                         .mask = Mask::window(100, 0),
                         .dropout = {0.1f, 3}});
}

// Tiles of every kernel: more than one of queries and of keys, the last ones not full; a band that
// begins and ends within tiles, patterns of whole blocks and of parts of them.
TEST_P(AttentionBackwardTest, SixteenBitsUnderEveryMask) {
  const Mask masks[] = {Mask::full(),
                        Mask::causal(),
                        Mask::window(70, 0),
                        Mask::window(30, 9),
                        Mask::window(-1, 40),
                        Mask::sinks(3, 50),
                        Mask::sinks(70, 33),
                        Mask::blocks(BlockMask::random(64, 4, 5, 2, 7)),
                        Mask::blocks(BlockMask::local(24, 9, 11, 1), true)};
  for (std::int64_t i = 0; const Mask& mask : masks) {
    for (std::int64_t dim : {64, 128}) {
      if (kSanitized && ++i % 4 > 1) continue;  // slow on an emulated GPU: one dim for each mask
      check_backward(ctx(), {.n_q = 201,
                             .n_k = 261,
                             .heads = 1,
                             .kv_heads = 1,
                             .dim = dim,
                             .mask = mask,
                             .dtype = DType::bf16});
    }
  }
}

TEST_P(AttentionBackwardTest, SixteenBitsInEveryShape) {
  for (std::int64_t dim : {8, 64, 80, 96, 104, 128}) {
    for (bool causal : {false, true}) {
      check_backward(ctx(), {.batch = 2,
                             .n_q = 77,
                             .n_k = 150,
                             .heads = 3,
                             .kv_heads = 1,
                             .dim = dim,
                             .mask = causal ? Mask::causal() : Mask::full(),
                             .dtype = causal ? DType::f16 : DType::bf16});
    }
  }
  check_backward(ctx(), {.n_q = 150, .n_k = 77, .mask = Mask::causal(), .dtype = DType::f16});
  check_backward(ctx(), {.n_q = 1, .n_k = 1, .dim = 128, .dtype = DType::f16});
  check_backward(ctx(), {.n_q = 70, .n_k = 70, .dtype = DType::f16, .scale = -0.2f});
}

TEST_P(AttentionBackwardTest, FullyMaskedRowsHaveNoGradient) {
  Gradients g(ctx(), {.n_q = 70, .n_k = 5, .mask = Mask::causal()});
  attention_backward(ctx(), g.args);
  const Array d_q = g.d_q.read();
  for (std::int64_t i = 0; i < 70; ++i) {
    if (i == 65) continue;  // sees one key: no gradient either, but for rounding
    EXPECT_EQ(d_q.at(0, i, 1, 3) == 0.0, i < 65) << i;
  }
}

TEST_P(AttentionBackwardTest, EmptySequences) {
  Gradients no_keys(ctx(), {.n_q = 3, .n_k = 0});
  attention_backward(ctx(), no_keys.args);
  EXPECT_TRUE(identical(no_keys.d_q.read(), Array({1, 3, 2, 64}, 0.0)));
  Gradients no_queries(ctx(), {.n_q = 0, .n_k = 3});
  attention_backward(ctx(), no_queries.args);
  EXPECT_TRUE(identical(no_queries.d_k.read(), Array({1, 3, 2, 64}, 0.0)));
  EXPECT_TRUE(identical(no_queries.d_v.read(), Array({1, 3, 2, 64}, 0.0)));
}

// Every sequence of a ragged batch has the gradients it has alone.
TEST_P(AttentionBackwardTest, Ragged) {
  Array offsets_q({4}), offsets_k({4});
  offsets_q.data = {0, 40, 40, 103};
  offsets_k.data = {0, 50, 60, 130};
  const TestTensor q_offsets(ctx(), offsets_q, DType::i32), k_offsets(ctx(), offsets_k, DType::i32);
  for (DType dtype : {DType::f32, DType::f16}) {
    Gradients g(ctx(), {.n_q = 103,
                        .n_k = 130,
                        .heads = 2,
                        .kv_heads = 1,
                        .dim = 16,
                        .mask = Mask::causal(),
                        .dtype = dtype,
                        .dropout = {0.2f, 8}});
    g.args.forward.q_offsets = q_offsets;
    g.args.forward.k_offsets = k_offsets;
    attention(ctx(), g.args.forward);
    reference::AttentionInputs in = g.forward.inputs();
    in.q_offsets = {0, 40, 40, 103};
    in.k_offsets = {0, 50, 60, 130};
    const reference::AttentionGradients exact = reference::attention_backward(in, g.d_out.read());
    for (const std::string& kernel : backward_kernels(ctx(), g.args)) {
      SCOPED_TRACE("kernel " + kernel);
      run_backward(ctx(), kernel, g.args);
      // Sums of some hundred products of numbers around 1, in f32; or of factors in f16.
      const double relative = dtype == DType::f32 ? 1e-5 : 2e-3;
      const double absolute = dtype == DType::f32 ? 2e-6 : 1e-2;
      EXPECT_TRUE(close(g.d_q.read(), exact.d_q, relative, absolute));
      EXPECT_TRUE(close(g.d_k.read(), exact.d_k, relative, absolute));
      EXPECT_TRUE(close(g.d_v.read(), exact.d_v, relative, absolute));
    }
  }
}

TEST_P(AttentionBackwardTest, SameBitsTwiceAndForAnyThreadCount) {
  for (DType dtype : kFloats) {
    const AttentionCase c{.batch = 2,
                          .n_q = 333,
                          .n_k = 399,
                          .heads = 6,
                          .kv_heads = 2,
                          .dim = 24,
                          .mask = Mask::causal(),
                          .dtype = dtype};
    const auto one = context(1), three = context(3);
    Gradients a(*one, c), b(*three, c), again(*three, c);
    for (Gradients* g : {&a, &b, &again}) g->args.deterministic = true;
    attention_backward(*one, a.args);
    attention_backward(*three, b.args);
    attention_backward(*three, again.args);
    for (const Gradients* other : {&b, &again}) {
      EXPECT_TRUE(identical(a.d_q.read(), other->d_q.read()));
      EXPECT_TRUE(identical(a.d_k.read(), other->d_k.read()));
      EXPECT_TRUE(identical(a.d_v.read(), other->d_v.read()));
    }
  }
}

TEST(AttentionSimd, EveryTargetGoesBackward) {
  Context ctx({.threads = 2});
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (DType dtype : kFloats) {
      for (std::int64_t dim : {19, 64, 80}) {
        check_backward(ctx, {.n_q = 45,
                             .n_k = 75,
                             .heads = 4,
                             .kv_heads = 2,
                             .dim = dim,
                             .mask = Mask::sinks(4, 37),
                             .dtype = dtype,
                             .softcap = 20.f,
                             .dropout = {0.2f, 5}});
      }
    }
  }
}

TEST_P(AttentionBackwardTest, MemoryGrowsWithTheLength) {
  constexpr std::int64_t kLength = 16384;
  const TestTensor memory(ctx(), Array({8, kLength, 1, 64}, 0.5), DType::f32);
  const TestTensor lse = TestTensor::poisoned(ctx(), {1, 1, kLength}, DType::f32);
  const auto tensor = [&](std::int64_t n) { return memory.view().slice(0, n, n + 1); };
  const AttentionArgs forward{.q = tensor(0),
                              .k = tensor(1),
                              .v = tensor(2),
                              .out = tensor(3),
                              .lse = lse,
                              .mask = Mask::window(100, 0)};
  attention(ctx(), forward);
  attention_backward(ctx(), {forward, tensor(4), tensor(5), tensor(6), tensor(7)});
  EXPECT_LT(ctx().workspace_peak_bytes(), 4 << 20);
}

TEST_P(AttentionBackwardTest, WhatTheForwardPassWroteMayBeReadOnly) {
  Gradients g(ctx(), {.n_q = 5, .n_k = 7});
  AttentionArgs& f = g.args.forward;
  for (Tensor* input : {&f.q, &f.k, &f.v, &f.out, &f.lse, &g.args.d_out}) input->read_only = true;
  attention_backward(ctx(), g.args);
  EXPECT_FALSE(std::isnan(g.d_q.read().data[0]));
  const std::string d_k = to_string(g.args.d_k);
  g.args.d_k.read_only = true;
  EXPECT_TRUE(refuses([&] { attention_backward(ctx(), g.args); },
                      "attention_backward: d_k " + d_k +
                          " is read-only, made from a pointer to const; give writable memory"));
}

TEST_P(AttentionBackwardTest, IsTraced) {
  Gradients g(ctx(),
              {.n_q = 4, .n_k = 6, .heads = 4, .kv_heads = 2, .dim = 8, .mask = Mask::causal()});
  ctx().trace().clear();
  attention_backward(ctx(), g.args);
  const char* kernel = GetParam().is_cpu() ? "cpu" : "cuda.plain";
  ASSERT_EQ(ctx().trace().calls("attention_backward", kernel), 1);  // f32
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "q f32[1, 4, 4, 8] k f32[1, 6, 2, 8] causal");
  EXPECT_EQ(entry.bytes, 4 * (4 * 4 * 32 + 4 * 6 * 16 + 4 * 4));
  EXPECT_EQ(entry.flops, 10 * 8 * 4 * (3 + 4 + 5 + 6));
}

TEST_P(AttentionBackwardTest, DropoutFollowsTheSeed) {
  const auto gradient = [&](std::uint64_t seed) {
    Gradients g(ctx(), {.n_q = 70, .n_k = 90, .dtype = DType::bf16, .dropout = {0.2f, seed}});
    attention_backward(ctx(), g.args);
    return g.d_k.read();
  };
  EXPECT_TRUE(identical(gradient(7), gradient(7)));
  EXPECT_FALSE(identical(gradient(7), gradient(8)));
}

TEST_P(AttentionBackwardTest, RefusesBeforeWriting) {
  using Args = AttentionBackwardArgs;
  static std::int32_t number = 0;
  static float frequency = 1.f;
  const std::vector<Refusal<Args>> refusals = {
      {[](Args& a) { a.forward.q = {}; }, "attention_backward: q was not given"},
      {[](Args& a) { a.forward.lse = {}; },
       "attention_backward: lse was not given; attention() writes it on request"},
      {[](Args& a) {
         a.forward.pages = {Tensor(&number, DType::i32, {1, 1}), Tensor(&number, DType::i32, {1})};
       },
       "attention_backward: pages are for inference; gradients need dense k and v"},
      {[](Args& a) { a.forward.rope_on_read.inv_freq = Tensor(&frequency, DType::f32, {1}); },
       "attention_backward: rope_on_read is for inference; rotate the keys before and use plain "
       "attention"},
      {[](Args& a) { a.d_out = {}; }, "attention_backward: d_out was not given"},
      {[](Args& a) { a.d_out.dtype = DType::f16; },
       "attention_backward: d_out is f16; accepted: f32"},
      {[](Args& a) { a.d_out = a.d_out.slice(1, 0, 4); },
       "attention_backward: d_out must have the shape of out, f32[1, 5, 2, 4], got f32[1, 4, 2, "
       "4]"},
      {[](Args& a) { a.d_q = {}; }, "attention_backward: d_q was not given"},
      {[](Args& a) { a.d_k.data = nullptr; },
       "attention_backward: d_k f32[1, 7, 2, 4] has no data (null pointer)"},
      {[](Args& a) { a.d_v = a.d_v.slice(2, 0, 1); },
       "attention_backward: d_v must have the shape of v, f32[1, 7, 2, 4], got f32[1, 7, 1, 4] "
       "with strides [56, 8, 4, 1]"},
      {[](Args& a) { a.d_k.strides[1] = 4; },
       "attention_backward: d_k reaches an element more than once: f32[1, 7, 2, 4] with strides "
       "[56, 4, 4, 1]"},
      {[](Args& a) { a.d_v = a.d_k; }, "attention_backward: d_k overlaps the memory of d_v"},
      {[](Args& a) { a.d_q = a.forward.q; }, "attention_backward: d_q overlaps the memory of q"},
      {[](Args& a) { a.d_q = a.d_out; }, "attention_backward: d_q overlaps the memory of d_out"},
  };
  for (const Refusal<Args>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    Gradients g(ctx(), {.n_q = 5, .n_k = 7, .dim = 4});
    refusal.spoil(g.args);
    // Made of host memory, which a call that is refused does not look at.
    for (Tensor* tensor : {&g.args.forward.pages.table, &g.args.forward.pages.lengths,
                           &g.args.forward.rope_on_read.inv_freq}) {
      tensor->device = GetParam();
    }
    EXPECT_TRUE(refuses([&] { attention_backward(ctx(), g.args); }, refusal.text, refusal.code));
    EXPECT_TRUE(g.d_q.untouched() && g.d_k.untouched() && g.d_v.untouched());
  }
}

}  // namespace
}  // namespace tessera::test
