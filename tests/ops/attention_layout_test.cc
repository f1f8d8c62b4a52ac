// Where sequences lie: ragged batches, pages, and keys that are rotated as they are read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "support/simd_targets.h"
#include "tessera/attention.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

class AttentionLayoutTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionLayoutTest, testing::ValuesIn(test_devices()),
                         device_name);

// Rows [begin, end) of dimension 1 of batch 0.
Array rows_of(const Array& x, std::int64_t begin, std::int64_t end) {
  Array result({1, end - begin, x.size(2), x.size(3)});
  const std::int64_t row = x.size(2) * x.size(3);
  std::copy(x.data.begin() + begin * row, x.data.begin() + end * row, result.data.begin());
  return result;
}

// ---- ragged ------------------------------------------------------------------------------------

// Empty sequences, single queries, more queries than keys, no keys at all.
const std::vector<std::int64_t> kQueries{40, 1, 0, 113, 3, 5}, kKeys{70, 299, 9, 50, 0, 5};

TEST_P(AttentionLayoutTest, RaggedBatch) {
  const std::vector<std::int64_t> q_at = offsets_of(kQueries), k_at = offsets_of(kKeys);
  const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
  const TestTensor k_offsets(ctx(), array_of(k_at), DType::i32);
  for (DType dtype : kFloats) {
    for (Layout layout : kLayouts) {
      for (const Mask& mask : every_mask(113, 299)) {
        SCOPED_TRACE(mask.to_string());
        AttentionTensors t(ctx(), {.n_q = q_at.back(),
                                   .n_k = k_at.back(),
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .dim = 16,
                                   .mask = mask,
                                   .dtype = dtype,
                                   .layout = layout});
        t.args.q_offsets = q_offsets;
        t.args.k_offsets = k_offsets;
        attention(ctx(), t.args);
        const reference::AttentionInputs in = t.inputs();
        const Array out = t.out.read();
        // Each sequence by itself: what a dense call gives, to the bit.
        for (std::size_t s = 0; s < kQueries.size(); ++s) {
          TestTensor q(ctx(), rows_of(in.q, q_at[s], q_at[s + 1]), dtype);
          TestTensor k(ctx(), rows_of(in.k, k_at[s], k_at[s + 1]), dtype);
          TestTensor v(ctx(), rows_of(in.v, k_at[s], k_at[s + 1]), dtype);
          TestTensor alone = TestTensor::poisoned(ctx(), {1, kQueries[s], 4, 16}, dtype);
          portable_attention(ctx(), {.q = q, .k = k, .v = v, .out = alone, .mask = mask});
          EXPECT_TRUE(identical(rows_of(out, q_at[s], q_at[s + 1]), alone.read())) << s;
        }
        EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
      }
    }
  }
}

TEST_P(AttentionLayoutTest, RaggedBatchAgainstTheReference) {
  const std::vector<std::int64_t> q_at = offsets_of(kQueries), k_at = offsets_of(kKeys);
  const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
  const TestTensor k_offsets(ctx(), array_of(k_at), DType::i32);
  AttentionTensors t(ctx(), {.n_q = q_at.back(),
                             .n_k = k_at.back(),
                             .heads = 4,
                             .kv_heads = 2,
                             .dim = 24,
                             .mask = Mask::causal(),
                             .dropout = {0.2f, 3}});
  t.args.q_offsets = q_offsets;
  t.args.k_offsets = k_offsets;
  attention(ctx(), t.args);
  reference::AttentionInputs in = t.inputs();
  in.q_offsets = q_at;
  in.k_offsets = k_at;
  const reference::AttentionResult exact = reference::attention(in);
  EXPECT_TRUE(close(t.out.read(), exact.out, 1e-5, 2e-6));
  EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
  const char* kernel = GetParam().is_cpu() ? "cpu.prefill+decode" : "cuda.plain";
  EXPECT_EQ(ctx().trace().calls("attention", kernel), 1);
}

// ---- paged -------------------------------------------------------------------------------------

// Sequence b of a dense call with n_k keys uses the first key_counts[b] of them.
const std::vector<std::int64_t> kLengths{239, 0, 64, 1, 100};
constexpr std::int64_t kMostKeys = 239;

// To the bit: the same keys in the same order, wherever they lie.
void check_pages(Context& ctx, std::int64_t page_size, const AttentionCase& c,
                 const std::vector<Hole>& holes = {}) {
  SCOPED_TRACE(c.text());
  AttentionTensors paged(ctx, c), dense(ctx, c);
  const Paged pool(ctx, page_size, kLengths, dense.k.read(), dense.v.read(), c.stored_dtype(),
                   c.layout, holes);
  pool.put_into(paged.args);
  attention(ctx, paged.args);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    AttentionArgs one = dense.args;
    for (Tensor* tensor : {&one.q, &one.k, &one.v, &one.out, &one.lse}) {
      *tensor = tensor->slice(0, b, b + 1);
    }
    one.k = one.k.slice(1, 0, kLengths[b]);
    one.v = one.v.slice(1, 0, kLengths[b]);
    portable_attention(ctx, one);
  }
  EXPECT_TRUE(identical(paged.out.read(), dense.out.read()));
  EXPECT_TRUE(identical(paged.lse.read(), dense.lse.read()));
  EXPECT_TRUE(paged.out.surroundings_intact() && paged.lse.surroundings_intact());
}

TEST_P(AttentionLayoutTest, PagesGiveWhatDenseKeysGive) {
  for (std::int64_t page_size : {1, 5, 16}) {
    for (DType dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (std::int64_t n_q : {1, 3, 50}) {
          check_pages(ctx(), page_size,
                      {.batch = 5,
                       .n_q = n_q,
                       .n_k = kMostKeys,
                       .heads = 4,
                       .kv_heads = 2,
                       .dim = 16,
                       .mask = Mask::sinks(2, 40),
                       .dtype = dtype,
                       .layout = layout});
        }
      }
    }
  }
  for (const Mask& mask : every_mask(50, kMostKeys)) {
    for (std::int64_t n_q : {2, 50}) {
      check_pages(ctx(), 16, {.batch = 5, .n_q = n_q, .n_k = kMostKeys, .dim = 8, .mask = mask});
    }
  }
}

TEST_P(AttentionLayoutTest, PagesAgainstTheReference) {
  for (bool ragged : {false, true}) {
    const std::vector<std::int64_t> q_at = offsets_of({40, 1, 2, 1, 56});
    const AttentionCase c{.batch = ragged ? 1 : 5,
                          .n_q = ragged ? q_at.back() : 20,
                          .n_k = kMostKeys,
                          .heads = 4,
                          .kv_heads = 2,
                          .dim = 24,
                          .mask = Mask::causal(),
                          .dropout = {0.1f, 8}};
    AttentionTensors t(ctx(), c);
    const Array keys = random_normal({5, kMostKeys, 2, 24}, 5);
    const Array values = random_normal({5, kMostKeys, 2, 24}, 6);
    const Paged paged(ctx(), 16, kLengths, keys, values, DType::f32, Layout::contiguous);
    const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
    paged.put_into(t.args);
    if (ragged) t.args.q_offsets = q_offsets;
    attention(ctx(), t.args);
    reference::AttentionInputs in = t.inputs();
    in.k = paged.k_pool->read();
    in.v = paged.v_pool->read();
    in.page_table = paged.table;
    in.lengths = array_of(kLengths);
    if (ragged) in.q_offsets = q_at;
    const reference::AttentionResult exact = reference::attention(in);
    EXPECT_TRUE(close(t.out.read(), exact.out, 1e-5, 2e-6));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
  }
}

// For the sequences of kLengths: at 0, inside a page, over several pages, none, from page to page,
// before the last key, and behind it.
const std::vector<std::vector<Hole>> kHoles{
    {{0, 3}, {0, 5}, {7, 40}, {0, 0}, {16, 32}},
    {{5, 1}, {3, 2}, {0, 100}, {0, 7}, {99, 11}},
    {{238, 13}, {0, 0}, {64, 5}, {1, 9}, {400, 1}},
};

TEST_P(AttentionLayoutTest, PagesWithHolesGiveWhatDenseKeysGive) {
  for (const std::vector<Hole>& holes : kHoles) {
    for (std::int64_t page_size : {1, 5, 16, 64}) {
      for (std::int64_t n_q : {1, 3, 50}) {
        for (DType stored : stored_dtypes_of_f32(GetParam())) {
          check_pages(ctx(), page_size,
                      {.batch = 5,
                       .n_q = n_q,
                       .n_k = kMostKeys,
                       .heads = 4,
                       .kv_heads = 2,
                       .dim = 16,
                       .mask = Mask::causal(),
                       .stored = stored,
                       .layout = n_q == 3 ? Layout::sliced : Layout::contiguous},
                      holes);
        }
      }
    }
  }
}

// ---- keys rotated as they are read --------------------------------------------------------------

TEST_P(AttentionLayoutTest, RopeOnReadAgainstTheReference) {
  for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    for (std::int64_t dims : {2, 24, 40}) {
      for (std::int64_t n_q : {1, 30}) {
        SCOPED_TRACE(testing::Message() << dims << " " << n_q);
        const std::vector<float> frequencies = rope_inv_freq(dims);
        Array inv_freq({dims / 2});
        std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
        const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
        AttentionTensors t(ctx(), {.batch = 2,
                                   .n_q = n_q,
                                   .n_k = 299,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .dim = 40,
                                   .mask = Mask::sinks(4, 100)});
        t.args.rope_on_read = {frequency_tensor, style};
        attention(ctx(), t.args);
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

// Key j rotates by j, wherever it lies. Sequences of equal and of different numbers of queries.
TEST_P(AttentionLayoutTest, RopeOnReadOfPagesWithHolesAgainstTheReference) {
  const std::vector<float> frequencies = rope_inv_freq(16);
  Array inv_freq({8});
  std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
  const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
  const std::vector<std::int64_t> q_at = offsets_of({40, 1, 2, 1, 56});
  const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
  const Array keys = random_normal({5, kMostKeys, 2, 24}, 5);
  const Array values = random_normal({5, kMostKeys, 2, 24}, 6);
  for (const std::vector<Hole>& holes : kHoles) {
    for (bool ragged : {false, true}) {
      for (std::int64_t page_size : {3, 16}) {
        AttentionTensors t(ctx(), {.batch = ragged ? 1 : 5,
                                   .n_q = ragged ? q_at.back() : 1,
                                   .n_k = kMostKeys,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .dim = 24,
                                   .mask = Mask::causal()});
        const Paged paged(ctx(), page_size, kLengths, keys, values, DType::f32, Layout::contiguous,
                          holes);
        paged.put_into(t.args);
        t.args.rope_on_read = {frequency_tensor, RopeStyle::half_split};
        if (ragged) t.args.q_offsets = q_offsets;
        attention(ctx(), t.args);
        reference::AttentionInputs in = t.inputs();
        in.k = paged.k_pool->read();
        in.v = paged.v_pool->read();
        in.page_table = paged.table;
        in.lengths = array_of(kLengths);
        in.holes = paged.hole_values;
        in.inv_freq = inv_freq;
        if (ragged) in.q_offsets = q_at;
        const reference::AttentionResult exact = reference::attention(in);
        EXPECT_TRUE(close(t.out.read(), exact.out, 1e-5, 2e-6));
        EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
      }
    }
  }
}

// The same as rotating first, for every dtype: the rotated key is rounded once more, so low
// precision is held to that rounding.
TEST_P(AttentionLayoutTest, RopeOnReadIsRotatingFirst) {
  const std::vector<float> frequencies = rope_inv_freq(64);
  Array inv_freq({32}), positions({299});
  std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
  std::iota(positions.data.begin(), positions.data.end(), 0.0);
  const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
  const TestTensor position_tensor(ctx(), positions, DType::i32);
  for (DType dtype : kFloats) {
    for (std::int64_t target : simd_targets()) {
      SCOPED_TRACE(simd_target_name(target));
      const ForceSimdTarget force(target);
      for (std::int64_t n_q : {1, 30}) {
        AttentionTensors t(ctx(), {.n_q = n_q, .n_k = 299, .mask = Mask::causal(), .dtype = dtype});
        const Paged paged(ctx(), 16, {299}, t.k.read(), t.v.read(), dtype, Layout::contiguous);
        AttentionArgs on_read = t.args;
        paged.put_into(on_read);
        on_read.rope_on_read = {frequency_tensor, RopeStyle::half_split};
        attention(ctx(), on_read);
        const Array out = t.out.read();
        rotary(ctx(), {t.k, position_tensor, on_read.rope_on_read, t.k});
        attention(ctx(), t.args);
        EXPECT_TRUE(close(out, t.out.read(), 0, 4 * epsilon(dtype)));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
