// Keys and values of 8 bits, f8e4m3 and i8, with a scale for each token and head: attention over
// them, and the two ops that write them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/kv_append.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"
#include "tessera/attention.h"
#include "tessera/kv_append.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

constexpr DType k8Bit[] = {DType::f8e4m3, DType::i8};

class Attention8BitTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Attention8BitTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(Attention8BitTest, OddSizesDtypesAndLayouts) {
  for (DType stored : k8Bit) {
    for (DType dtype : kFloats) {
      for (std::int64_t n_q : {1, 5, 41}) {
        for (std::int64_t dim : {3, 33, 64, 128}) {
          check_attention_case(ctx(), {.n_q = n_q,
                                       .n_k = 83,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .dim = dim,
                                       .mask = Mask::causal(),
                                       .dtype = dtype,
                                       .stored = stored,
                                       .layout = kLayouts[(n_q + dim) % 3]});
        }
      }
    }
  }
}

TEST_P(Attention8BitTest, MasksChunksSoftcapAndDropout) {
  for (DType stored : k8Bit) {
    for (std::int64_t n_q : {2, 45}) {
      for (const Mask& mask : {Mask::full(), Mask::window(300, 0), Mask::sinks(4, 200)}) {
        check_attention_case(ctx(), {.n_q = n_q,
                                     .n_k = 399,
                                     .dim = 16,
                                     .mask = mask,
                                     .dtype = DType::f16,
                                     .stored = stored});
      }
      check_attention_case(ctx(), {.n_q = n_q,
                                   .n_k = 131,
                                   .dim = 24,
                                   .mask = Mask::causal(),
                                   .stored = stored,
                                   .softcap = 1.5f,
                                   .dropout = {0.3f, 7}});
    }
  }
}

// Scales of values must not be lost where weights are rounded to f16, whose smallest normal number
// is 6e-5.
TEST_P(Attention8BitTest, SmallAndLargeValues) {
  for (DType stored : k8Bit) {
    for (double spread : {1e-3, 300.0}) {
      for (std::int64_t n_q : {1, 40}) {
        check_attention_case(ctx(), {.n_q = n_q,
                                     .n_k = 300,
                                     .mask = Mask::causal(),
                                     .dtype = DType::f16,
                                     .stored = stored,
                                     .value_spread = spread});
      }
    }
  }
}

TEST(Attention8Bit, EverySimdTarget) {
  Context ctx({.threads = 1});
  on_every_simd_target([&] {
    for (DType stored : k8Bit) {
      for (std::int64_t n_q : {1, 20}) {
        check_attention_case(
            ctx, {.n_q = n_q, .n_k = 70, .dim = 40, .mask = Mask::causal(), .stored = stored});
      }
    }
  });
}

// ---- pages -------------------------------------------------------------------------------------

// A pool of pages that hold nothing yet: every scale is NaN.
struct Pool8 {
  Pool8(Context& ctx, std::int64_t pages, std::int64_t page_size, std::int64_t heads,
        std::int64_t dim, DType dtype, Layout layout)
      : codes(TestTensor::poisoned(ctx, {pages, page_size, heads, dim}, dtype, layout)),
        scales(TestTensor::poisoned(ctx, {pages, heads, page_size}, DType::f32, layout)) {}
  reference::Scaled read() const { return {codes.read(), scales.read()}; }

  TestTensor codes, scales;
};

struct Paged8Case {
  DType stored = DType::i8, dtype = DType::f32;
  Layout layout = Layout::contiguous;
  std::int64_t dim = 32, rotated = 0;  // rope_on_read
  RopeStyle style = RopeStyle::half_split;
};

// Two sequences in pages of 5, the second with a hole, of one query or many.
void check_paged_case(Context& ctx, const Paged8Case& c, std::int64_t n_q) {
  SCOPED_TRACE(testing::Message() << name(c.stored) << " " << name(c.dtype) << " dim " << c.dim
                                  << " " << to_string(c.layout) << " queries " << n_q << " rotated "
                                  << c.rotated);
  constexpr std::int64_t kPages = 40, kPageSize = 5, kKvHeads = 2, kHeads = 6, kTokens = 148;
  Pool8 k(ctx, kPages, kPageSize, kKvHeads, c.dim, c.stored, c.layout);
  Pool8 v(ctx, kPages, kPageSize, kKvHeads, c.dim, c.stored, c.layout);
  // Key j of sequence b lies in slot j, behind the hole in slot j + 7, and slots run through every
  // third page.
  const Array lengths = [] {
    Array l({2});
    l.at(0) = 61, l.at(1) = 87;
    return l;
  }();
  Array holes({2, 2}), table({2, 20}, -7), slots({kTokens});
  holes.at(0, 0) = 1000, holes.at(1, 0) = 13, holes.at(1, 1) = 7;
  std::int64_t token = 0, page = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(lengths.at(b)); ++j) {
      const std::int64_t slot = b == 1 && j >= 13 ? j + 7 : j;
      double& entry = table.at(b, slot / kPageSize);
      if (entry < 0) entry = static_cast<double>(page++ * 3 % kPages);
      slots.at(token++) = entry * kPageSize + static_cast<double>(slot % kPageSize);
    }
  }
  const TestTensor new_k(ctx, random_normal({kTokens, kKvHeads, c.dim}, 1), c.dtype);
  const TestTensor new_v(ctx, random_normal({kTokens, kKvHeads, c.dim}, 2), c.dtype);
  const TestTensor slot_tensor(ctx, slots, DType::i32);
  const reference::Scaled k_before = k.read(), v_before = v.read();
  kv_append(ctx, {.k = new_k,
                  .v = new_v,
                  .slots = slot_tensor,
                  .k_pages = k.codes,
                  .v_pages = v.codes,
                  .k_scales = k.scales,
                  .v_scales = v.scales});
  for (const auto& [pool, x, before] :
       {std::tuple{&k, &new_k, &k_before}, {&v, &new_v, &v_before}}) {
    const reference::Scaled expected = reference::kv_append(x->read(), slots, *before, c.stored);
    EXPECT_TRUE(identical(pool->codes.read(), expected.codes));
    EXPECT_TRUE(identical(pool->scales.read(), expected.scales));
    EXPECT_TRUE(pool->codes.surroundings_intact() && pool->scales.surroundings_intact());
  }

  const TestTensor q(ctx, random_normal({2, n_q, kHeads, c.dim}, 3), c.dtype, c.layout);
  const TestTensor table_tensor(ctx, table, DType::i32), length_tensor(ctx, lengths, DType::i32);
  const TestTensor hole_tensor(ctx, holes, DType::i32);
  const std::vector<float> frequencies = rope_inv_freq(std::max<std::int64_t>(c.rotated, 2));
  Array inv_freq({std::ssize(frequencies)});
  std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
  const TestTensor inv_freq_tensor(ctx, inv_freq, DType::f32);
  const reference::AttentionResult exact =
      reference::attention({.q = q.read(),
                            .k = reference::decoded(k.read()),
                            .v = reference::decoded(v.read()),
                            .mask = Mask::causal(),
                            .page_table = table,
                            .lengths = lengths,
                            .holes = holes,
                            .inv_freq = c.rotated > 0 ? inv_freq : Array(),
                            .rope_style = c.style});
  AttentionArgs args{.q = q,
                     .k = k.codes,
                     .v = v.codes,
                     .mask = Mask::causal(),
                     .pages = {table_tensor, length_tensor, hole_tensor},
                     .k_scales = k.scales,
                     .v_scales = v.scales};
  if (c.rotated > 0) args.rope_on_read = {inv_freq_tensor, c.style};
  const TestTensor sized = TestTensor::poisoned(ctx, {2, n_q, kHeads, c.dim}, c.dtype);
  args.out = sized;  // kernels are listed for whole calls
  for_each_attention_kernel(ctx, args, [&] {
    TestTensor out = TestTensor::poisoned(ctx, {2, n_q, kHeads, c.dim}, c.dtype, c.layout);
    TestTensor lse = TestTensor::poisoned(ctx, {2, kHeads, n_q}, DType::f32);
    args.out = out;
    args.lse = lse;
    attention(ctx, args);
    const double rounding = c.dtype == DType::f32 ? 1e-5 : 2 * epsilon(c.dtype);
    EXPECT_TRUE(close(out.read(), exact.out, rounding, rounding));
    EXPECT_TRUE(close(lse.read(), exact.lse, rounding, rounding));
    EXPECT_TRUE(out.surroundings_intact() && lse.surroundings_intact());
  });
}

TEST_P(Attention8BitTest, PagesThatKvAppendWrote) {
  std::size_t i = 0;
  for (DType stored : k8Bit) {
    for (DType dtype : kFloats) {
      for (std::int64_t n_q : {1, 30}) {
        const std::int64_t dim = std::vector<std::int64_t>{21, 32, 64, 80}[i % 4];
        const Layout layout = kLayouts[i++ % 3];
        check_paged_case(ctx(), {.stored = stored, .dtype = dtype, .layout = layout, .dim = dim},
                         n_q);
      }
    }
  }
}

TEST_P(Attention8BitTest, KeysAreRotatedAsTheyAreRead) {
  for (DType stored : k8Bit) {
    for (DType dtype : {DType::f32, DType::f16}) {
      for (std::int64_t n_q : {1, 30}) {
        const auto check = [&](std::int64_t rotated, RopeStyle style) {
          check_paged_case(
              ctx(), {.stored = stored, .dtype = dtype, .rotated = rotated, .style = style}, n_q);
        };
        check(24, RopeStyle::half_split);
        check(32, n_q == 1 ? RopeStyle::half_split : RopeStyle::interleaved);
      }
    }
  }
}

// ---- what is refused ---------------------------------------------------------------------------

TEST_P(Attention8BitTest, RefusesWrongScales) {
  AttentionTensors t(ctx(), {.n_q = 5, .n_k = 7, .dim = 4, .stored = DType::i8});
  const AttentionTensors half(ctx(), {.n_q = 5, .n_k = 7, .dim = 4, .dtype = DType::f16});
  const std::vector<Refusal<AttentionArgs>> refusals{
      {[](AttentionArgs& a) { a.k_scales = {}; }, "attention: k is i8, and k_scales was not given"},
      {[](AttentionArgs& a) { a.v_scales = {}; }, "attention: v is i8, and v_scales was not given"},
      {[](AttentionArgs& a) { a.k_scales.dtype = DType::f16; },
       "attention: k_scales is f16; accepted: f32"},
      {[](AttentionArgs& a) { a.v_scales = a.v_scales.slice(2, 0, 6); },
       "attention: v_scales must have shape [1, 2, 7], got f32[1, 2, 6] with strides [14, 7, 1]"},
      {[](AttentionArgs& a) { a.v.dtype = DType::f8e4m3; }, "attention: v is f8e4m3; accepted: i8"},
      {[&](AttentionArgs& a) { a.q = half.q, a.k = half.k, a.v = half.v; },
       "attention: k_scales was given, but k is f16; only f8e4m3 and i8 have scales"},
  };
  for (const auto& [spoil, text, code] : refusals) {
    AttentionArgs args = t.args;
    spoil(args);
    EXPECT_TRUE(refuses([&] { attention(ctx(), args); }, text, code));
  }
  EXPECT_TRUE(
      refuses([&] { attention_backward(ctx(), {.forward = t.args}); },
              "attention_backward: k is i8 and q is f32; gradients need both in one dtype"));
  EXPECT_TRUE(t.out.untouched() && t.lse.untouched());
}

// A head of a token with a number that is not finite becomes NaN, and its neighbours do not; a head
// of zeros is zeros; the largest numbers stay finite.
TEST_P(Attention8BitTest, RowsThatAreNotFiniteBecomeNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  for (DType stored : k8Bit) {
    Array x = random_normal({5, 2, 19}, 1);
    x.at(0, 1, 18) = inf;
    x.at(1, 0, 0) = -inf;
    x.at(2, 1, 7) = std::nan("");
    for (std::int64_t d = 0; d < 19; ++d) x.at(3, 0, d) = 0;
    x.at(4, 0, 3) = std::numeric_limits<float>::max();
    x.at(4, 1, 3) = 1e-44;
    for (std::int64_t d = 0; d < 19; ++d) {
      if (d != 3) x.at(4, 1, d) = 0;
    }
    Array slots({5});
    for (std::int64_t i = 0; i < 5; ++i) slots.at(i) = static_cast<double>(i);
    Pool8 k(ctx(), 2, 3, 2, 19, stored, Layout::contiguous);
    Pool8 v(ctx(), 2, 3, 2, 19, stored, Layout::contiguous);
    const TestTensor rows(ctx(), x, DType::f32), slot_tensor(ctx(), slots, DType::i32);
    kv_append(ctx(), {.k = rows,
                      .v = rows,
                      .slots = slot_tensor,
                      .k_pages = k.codes,
                      .v_pages = v.codes,
                      .k_scales = k.scales,
                      .v_scales = v.scales});
    const Array values = reference::decoded(k.read());
    for (std::int64_t i = 0; i < 5; ++i) {
      for (std::int64_t h = 0; h < 2; ++h) {
        const bool finite = !(i == 0 && h == 1) && !(i == 1 && h == 0) && !(i == 2 && h == 1);
        for (std::int64_t d = 0; d < 19; ++d) {
          EXPECT_EQ(std::isfinite(values.at(i / 3, i % 3, h, d)), finite) << i << " " << h;
        }
      }
    }
    EXPECT_EQ(values.at(1, 0, 0, 5), 0);
    EXPECT_NEAR(values.at(1, 1, 0, 3) / x.at(4, 0, 3), 1.0, 0.01);
  }
}

}  // namespace
}  // namespace tessera::test
