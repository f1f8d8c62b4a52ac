// Attention around the ring against the float64 twin over the whole sequence: every mask, lengths
// that no number of ranks divides, lengths below the number of ranks, grouped heads, each dtype.
#include "tessera/ring_attention.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "modules/ring_mask.h"
#include "parallel/ranks.h"
#include "reference/attention.h"
#include "reference/parity.h"
#include "reference/test_tensor.h"
#include "support/attention_case.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

// The rank's rows of [batch, tokens, heads, dim], or of the last dimension of an lse.
Array own_rows(const Array& whole, const RingLayout& layout, int rank, int axis) {
  std::vector<std::int64_t> shape = whole.shape;
  shape[static_cast<std::size_t>(axis)] = layout.rows(rank);
  Array part(shape);
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= whole.shape[static_cast<std::size_t>(d)];
  for (std::size_t d = static_cast<std::size_t>(axis) + 1; d < whole.shape.size(); ++d) {
    inner *= whole.shape[d];
  }
  std::size_t at = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const RingLayout::Chunk& chunk : layout.chunks(rank)) {
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
        for (std::int64_t i = 0; i < inner; ++i) {
          part.data[at++] = whole.data[static_cast<std::size_t>(
              (o * whole.shape[static_cast<std::size_t>(axis)] + row) * inner + i)];
        }
      }
    }
  }
  return part;
}

struct RingCase {
  std::int64_t tokens;
  Mask mask;
  DType dtype = DType::f32;
  float softcap = 0.f;
  std::int64_t kv_heads = 2;
};

// The rank's part of a call over a whole sequence.
struct RingCallOfRank {
  RingCallOfRank(Context& ctx, const RingCase& c)
      : layout(ring_layout(c.tokens, ranks().size(), c.mask)),
        whole(ctx, {.batch = 2,
                    .n_q = c.tokens,
                    .n_k = c.tokens,
                    .heads = 2,
                    .kv_heads = c.kv_heads,
                    .dim = 16,
                    .mask = c.mask,
                    .dtype = c.dtype,
                    .softcap = c.softcap}),
        in(whole.inputs()),
        q(ctx, part(in.q, 1), c.dtype),
        k(ctx, part(in.k, 1), c.dtype),
        v(ctx, part(in.v, 1), c.dtype),
        out(TestTensor::poisoned(ctx, part(in.q, 1).shape, c.dtype)),
        lse(TestTensor::poisoned(ctx, {2, 2, layout.rows(ranks().rank())}, DType::f32)),
        args{.tokens = c.tokens,
             .q = q,
             .k = k,
             .v = v,
             .out = out,
             .lse = lse,
             .mask = c.mask,
             .softcap = c.softcap} {}

  Array part(const Array& array, int axis) const {
    return own_rows(array, layout, ranks().rank(), axis);
  }

  RingLayout layout;
  AttentionTensors whole;
  reference::AttentionInputs in;
  TestTensor q, k, v, out, lse;
  RingAttentionArgs args;
};

constexpr double kGradientBound = 1e-5;

void check_forward(Context& ctx, const RingCase& c) {
  RingCallOfRank call(ctx, c);
  ring_attention(ctx, ranks(), call.args);
  if (call.layout.rows(ranks().rank()) == 0) return;
  const reference::AttentionResult exact = reference::attention(call.in);
  const Array plain = plain_attention(call.in, c.dtype);
  EXPECT_TRUE(good(call.out.read(), call.part(exact.out, 1), call.part(plain, 1)));
  EXPECT_TRUE(good_lse(call.lse.read(), call.part(exact.lse, 2)));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.k.untouched());
}

void check_backward(Context& ctx, const RingCase& c) {
  RingCallOfRank call(ctx, c);
  ring_attention(ctx, ranks(), call.args);
  const Array d_out = random_normal(call.in.q.shape, 9);
  const TestTensor own_d_out(ctx, call.part(d_out, 1), c.dtype);
  const auto like = [&](const TestTensor& t) {
    return TestTensor::poisoned(ctx, t.read().shape, c.dtype);
  };
  const TestTensor d_q = like(call.q), d_k = like(call.k), d_v = like(call.v);
  ring_attention_backward(
      ctx, ranks(), {.forward = call.args, .d_out = own_d_out, .d_q = d_q, .d_k = d_k, .d_v = d_v});
  if (call.layout.rows(ranks().rank()) == 0) return;
  const auto exact = reference::attention_backward(call.in, d_out);
  if (c.dtype == DType::f32) {  // a few roundings of numbers around 1
    EXPECT_LT(reference::compare(d_q.read(), call.part(exact.d_q, 1)).max_abs, kGradientBound);
    EXPECT_LT(reference::compare(d_k.read(), call.part(exact.d_k, 1)).max_abs, kGradientBound);
    EXPECT_LT(reference::compare(d_v.read(), call.part(exact.d_v, 1)).max_abs, kGradientBound);
    return;
  }
  const auto plain = plain_attention_backward(call.in, d_out, c.dtype);
  EXPECT_TRUE(good(d_q.read(), call.part(exact.d_q, 1), call.part(plain.d_q, 1)));
  EXPECT_TRUE(good(d_k.read(), call.part(exact.d_k, 1), call.part(plain.d_k, 1)));
  EXPECT_TRUE(good(d_v.read(), call.part(exact.d_v, 1), call.part(plain.d_v, 1)));
}

TEST(RingAttention, EveryMaskAndLength) {
  Context ctx({.threads = 1});
  for (const std::int64_t tokens : {1, 2, 3, 7, 37, 75}) {
    for (const Mask& mask : every_mask(tokens, tokens)) {
      SCOPED_TRACE(std::to_string(tokens) + " " + mask.to_string());
      check_forward(ctx, {.tokens = tokens, .mask = mask});
      check_backward(ctx, {.tokens = tokens, .mask = mask});
    }
  }
}

// Windows shorter than a chunk, longer than one, and longer than all; sinks that end in a chunk.
TEST(RingAttention, WindowsAndSinksOfEveryWidth) {
  Context ctx({.threads = 1});
  for (const std::int64_t width : {0, 1, 4, 9, 17, 40, 70}) {
    for (const Mask& mask :
         {Mask::window(width, 0), Mask::window(width, 3), Mask::window(2, width),
          Mask::window(-1, width), Mask::sinks(5, width + 1), Mask::sinks(width, 3)}) {
      SCOPED_TRACE(mask.to_string());
      check_forward(ctx, {.tokens = 67, .mask = mask});
    }
  }
}

TEST(RingAttention, DtypesGroupedHeadsAndSoftcap) {
  Context ctx({.threads = 1});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const RingCase c{
        .tokens = 61, .mask = Mask::causal(), .dtype = dtype, .softcap = 3.f, .kv_heads = 1};
    check_forward(ctx, c);
    check_backward(ctx, c);
  }
}

// Each rank has as many visible pairs as another, up to one chunk.
TEST(RingAttention, TheZigzagIsBalanced) {
  const RingLayout layout(8192, 4);
  std::vector<std::int64_t> pairs;
  std::int64_t rows = 0;
  for (int rank = 0; rank < 4; ++rank) {
    rows += layout.rows(rank);
    pairs.push_back(0);
    for (const RingLayout::Chunk& chunk : layout.chunks(rank)) {
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) pairs.back() += row + 1;
    }
  }
  EXPECT_EQ(rows, 8192);
  for (const std::int64_t count : pairs) EXPECT_EQ(count, pairs.front());
}

TEST(RingAttention, RefusesRowsOfAnotherLayout) {
  Context ctx({.threads = 1});
  RingCallOfRank call(ctx, {.tokens = 40, .mask = Mask::causal()});
  call.args.tokens = 400;
  EXPECT_THROW(ring_attention(ctx, ranks(), call.args), Error);
}

}  // namespace
}  // namespace tessera::test
