#include "support/ring_case.h"

#include <gtest/gtest.h>

#include <vector>

#include "reference/parity.h"
#include "support/compare.h"

namespace tessera::test {

RingCallOfRank::RingCallOfRank(Context& ctx, const Communicator& ranks, const RingCase& c)
    : rank(ranks.rank()),
      layout(ring_layout(c.tokens, ranks.size(), c.mask)),
      whole(ctx, {.batch = 2,
                  .n_q = c.tokens,
                  .n_k = c.tokens,
                  .heads = 2,
                  .kv_heads = c.kv_heads,
                  .dim = c.dim,
                  .mask = c.mask,
                  .dtype = c.dtype,
                  .softcap = c.softcap}),
      in(whole.inputs()),
      q(ctx, part(in.q, 1), c.dtype),
      k(ctx, part(in.k, 1), c.dtype),
      v(ctx, part(in.v, 1), c.dtype),
      out(TestTensor::poisoned(ctx, part(in.q, 1).shape, c.dtype)),
      lse(TestTensor::poisoned(ctx, {2, 2, layout.rows(rank)}, DType::f32)),
      args{.tokens = c.tokens,
           .q = q,
           .k = k,
           .v = v,
           .out = out,
           .lse = lse,
           .mask = c.mask,
           .softcap = c.softcap} {}

Array RingCallOfRank::part(const Array& array, int axis) const {
  const auto along = static_cast<std::size_t>(axis);
  std::vector<std::int64_t> shape = array.shape;
  shape[along] = layout.rows(rank);
  Array rows(shape);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t d = 0; d < along; ++d) outer *= array.shape[d];
  for (std::size_t d = along + 1; d < array.shape.size(); ++d) inner *= array.shape[d];
  std::size_t at = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const RingLayout::Chunk& chunk : layout.chunks(rank)) {
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
        for (std::int64_t i = 0; i < inner; ++i) {
          rows.data[at++] =
              array.data[static_cast<std::size_t>((o * array.shape[along] + row) * inner + i)];
        }
      }
    }
  }
  return rows;
}

namespace {

// In f32, a few roundings of numbers around 1; a GPU's exponentials have an error of two units.
void expect_gradient(const TestTensor& actual, const Array& exact, const Array& plain) {
  const Tensor& view = actual;
  if (view.dtype == DType::f32) {
    const double bound = view.device.is_cpu() ? 1e-5 : 3e-5;
    EXPECT_LT(reference::compare(actual.read(), exact).max_abs, bound);
  } else {
    EXPECT_TRUE(good(actual.read(), exact, plain));
  }
}

}  // namespace

void check_ring_forward(Context& ctx, Communicator& ranks, const RingCase& c) {
  RingCallOfRank call(ctx, ranks, c);
  ring_attention(ctx, ranks, call.args);
  if (call.layout.rows(call.rank) == 0) return;
  const reference::AttentionResult exact = reference::attention(call.in);
  const Array plain = plain_attention(call.in, c.dtype);
  EXPECT_TRUE(good(call.out.read(), call.part(exact.out, 1), call.part(plain, 1)));
  EXPECT_TRUE(good_lse(call.lse.read(), call.part(exact.lse, 2)));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.k.untouched());
}

void check_ring_backward(Context& ctx, Communicator& ranks, const RingCase& c) {
  RingCallOfRank call(ctx, ranks, c);
  ring_attention(ctx, ranks, call.args);
  const Array d_out = random_normal(call.in.q.shape, 9);
  const TestTensor own_d_out(ctx, call.part(d_out, 1), c.dtype);
  const auto like = [&](const TestTensor& t) {
    return TestTensor::poisoned(ctx, t.read().shape, c.dtype);
  };
  const TestTensor d_q = like(call.q), d_k = like(call.k), d_v = like(call.v);
  ring_attention_backward(
      ctx, ranks, {.forward = call.args, .d_out = own_d_out, .d_q = d_q, .d_k = d_k, .d_v = d_v});
  if (call.layout.rows(call.rank) == 0) return;
  const auto exact = reference::attention_backward(call.in, d_out);
  const auto plain =
      c.dtype == DType::f32 ? exact : plain_attention_backward(call.in, d_out, c.dtype);
  expect_gradient(d_q, call.part(exact.d_q, 1), call.part(plain.d_q, 1));
  expect_gradient(d_k, call.part(exact.d_k, 1), call.part(plain.d_k, 1));
  expect_gradient(d_v, call.part(exact.d_v, 1), call.part(plain.d_v, 1));
}

}  // namespace tessera::test
