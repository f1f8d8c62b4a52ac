// cuda.hopper.decode over keys and values of 8 bits: what hopper_decode_test.cc asks of 16 bits,
// and what is its own: steps whose second half does not exist, copies of three sizes, scales that
// begin anywhere, and two heads in a row of 128 or 160 bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/attention/choose.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "reference/kv_append.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

constexpr char kCodedDecode[] = "cuda.hopper.decode";
constexpr DType kCodeTypes[] = {DType::f8e4m3, DType::i8};

class HopperDecodeCodesTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::has_hopper_kernels(cuda::state_of(ctx()).limits())) GTEST_SKIP() << "no Hopper GPU";
    cuda::force_attention_kernel(ctx(), kCodedDecode);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, HopperDecodeCodesTest, testing::Values(Device::cuda()),
                         device_name);

// Fewer steps than blocks, one more, and several for each; more and fewer key heads than blocks.
// Every length around the ends of steps and of their halves.
TEST_P(HopperDecodeCodesTest, SharesOfAnySize) {
  struct Size {
    std::int64_t batch, kv_heads, n_k;
  };
  const Size sizes[] = {{8, 2, 1},    {8, 2, 31},  {8, 2, 32},   {8, 2, 33},   {8, 2, 63},
                        {8, 2, 64},   {8, 2, 65},  {8, 2, 96},   {8, 2, 97},   {1, 8, 8513},
                        {3, 8, 1000}, {2, 50, 97}, {5, 34, 200}, {150, 2, 40}, {1, 140, 70}};
  for (DType stored : kCodeTypes) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (const Size& size : sizes) {
        for (std::int64_t dim : {64, 80, 128}) {
          const std::int64_t group = dim == 80 ? 1 : 4;
          check_attention_case(ctx(), {.batch = size.batch,
                                       .n_q = 1,
                                       .n_k = size.n_k,
                                       .heads = group * size.kv_heads,
                                       .kv_heads = size.kv_heads,
                                       .dim = dim,
                                       .mask = Mask::causal(),
                                       .dtype = dtype,
                                       .stored = stored});
        }
      }
    }
  }
}

TEST_P(HopperDecodeCodesTest, RunsOfQueriesUnderEveryMask) {
  std::size_t i = 0;
  for (const Mask& mask : every_mask(4, 300)) {
    if (mask.kind() == Mask::Kind::blocks) continue;
    for (std::int64_t group : {1, 3, 4}) {
      for (std::int64_t dim : {64, 80, 128}) {
        check_attention_case(ctx(), {.batch = 2,
                                     .n_q = 4,
                                     .n_k = 300,
                                     .heads = 2 * group,
                                     .kv_heads = 2,
                                     .dim = dim,
                                     .mask = mask,
                                     .dtype = i % 3 == 0 ? DType::f16 : DType::bf16,
                                     .stored = kCodeTypes[i % 2]});
        ++i;
      }
    }
  }
}

// ---- pages --------------------------------------------------------------------------------------

struct CodedPages {
  DType stored = DType::i8, dtype = DType::bf16;
  std::int64_t dim = 128, page_size = 64, queries = 2, group = 3;
  Mask mask = Mask::causal();
  std::int64_t hole_begin = 0, hole_size = 0;  // of every sequence
  // Nothing, halves of steps, whole steps, and many, in an order that leaves gaps.
  std::vector<std::int64_t> lengths{0, 1, 700, 32, 0, 31, 33, 64, 65, 129, 16, 1500, 96, 0};
};

// A call whose keys lie in pages in shuffled order. Where no key is, scales and codes are NaN, as
// far as codes can be.
struct CodedPool {
  static constexpr std::int64_t kKvHeads = 4;

  CodedPool(Context& ctx, const CodedPages& c)
      : table(tables(c)),
        k(ctx, codes(c, 1), c.stored),
        v(ctx, codes(c, 2), c.stored),
        k_scales(ctx, scales(c, 3), DType::f32),
        v_scales(ctx, scales(c, 4), DType::f32),
        q(ctx, random_normal({std::ssize(c.lengths), c.queries, kKvHeads * c.group, c.dim}, 5),
          c.dtype),
        out(TestTensor::poisoned(ctx, q.read().shape, c.dtype)),
        lse(TestTensor::poisoned(ctx, {std::ssize(c.lengths), kKvHeads * c.group, c.queries},
                                 DType::f32)),
        table_tensor(ctx, table, DType::i32),
        lengths(ctx, array_of(c.lengths), DType::i32),
        holes(hole_of_each(c)),
        hole_tensor(ctx, holes, DType::i32),
        args{.q = q,
             .k = k,
             .v = v,
             .out = out,
             .lse = lse,
             .mask = c.mask,
             .pages = {table_tensor, lengths},
             .k_scales = k_scales,
             .v_scales = v_scales} {
    if (c.hole_size > 0) args.pages.holes = hole_tensor;
  }

  reference::AttentionInputs inputs() const {
    return {.q = q.read(),
            .k = reference::decoded({k.read(), k_scales.read()}),
            .v = reference::decoded({v.read(), v_scales.read()}),
            .mask = args.mask,
            .page_table = table,
            .lengths = lengths.read(),
            .holes = holes};
  }

  Array table;
  TestTensor k, v, k_scales, v_scales, q, out, lse, table_tensor, lengths;
  Array holes;
  TestTensor hole_tensor;
  AttentionArgs args;

 private:
  static Array hole_of_each(const CodedPages& c) {
    Array result({std::ssize(c.lengths), 2});
    for (std::int64_t b = 0; b < std::ssize(c.lengths); ++b) {
      result.at(b, 0) = static_cast<double>(c.hole_begin);
      result.at(b, 1) = static_cast<double>(c.hole_size);
    }
    return result;
  }
  static std::int64_t slot_of(const CodedPages& c, std::int64_t key) {
    return key < c.hole_begin ? key : key + c.hole_size;
  }
  static std::int64_t pages_of(const CodedPages& c, std::int64_t keys) {
    return keys == 0 ? 0 : slot_of(c, keys - 1) / c.page_size + 1;
  }
  // Pages of all sequences, and one that nobody has.
  static std::int64_t pool_pages(const CodedPages& c) {
    std::int64_t pages = 1;
    for (const std::int64_t keys : c.lengths) pages += pages_of(c, keys);
    return pages;
  }
  // Entries without keys point nowhere. The last page of the pool is a sequence's, too.
  static Array tables(const CodedPages& c) {
    const std::int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    Array table({std::ssize(c.lengths), pages_of(c, longest) + 1}, -1000);
    std::int64_t page = pool_pages(c);
    for (std::int64_t b = 0; b < std::ssize(c.lengths); ++b) {
      const std::int64_t used = pages_of(c, c.lengths[static_cast<std::size_t>(b)]);
      for (std::int64_t i = 0; i < used; ++i) table.at(b, i) = static_cast<double>(--page);
    }
    return table;
  }
  // Calls fn(page, row) for every slot that has no key.
  template <typename F>
  static void for_each_empty_slot(const CodedPages& c, F fn) {
    const Array table = tables(c);
    std::vector<bool> has_key(static_cast<std::size_t>(pool_pages(c) * c.page_size));
    for (std::int64_t b = 0; b < std::ssize(c.lengths); ++b) {
      for (std::int64_t j = 0; j < c.lengths[static_cast<std::size_t>(b)]; ++j) {
        const std::int64_t slot = slot_of(c, j);
        const auto page = static_cast<std::int64_t>(table.at(b, slot / c.page_size));
        has_key[static_cast<std::size_t>(page * c.page_size + slot % c.page_size)] = true;
      }
    }
    for (std::int64_t i = 0; i < pool_pages(c) * c.page_size; ++i) {
      if (!has_key[static_cast<std::size_t>(i)]) fn(i / c.page_size, i % c.page_size);
    }
  }
  static Array codes(const CodedPages& c, std::uint64_t seed) {
    Array x = random_normal({pool_pages(c), c.page_size, kKvHeads, c.dim}, seed, 20);
    if (c.stored == DType::i8) {
      for (double& code : x.data) code = std::clamp(std::round(code), -127.0, 127.0);
      return x;
    }
    for_each_empty_slot(c, [&](std::int64_t page, std::int64_t row) {
      for (std::int64_t i = 0; i < kKvHeads * c.dim; ++i) {
        x.at(page, row, i / c.dim, i % c.dim) = std::numeric_limits<double>::quiet_NaN();
      }
    });
    return x;
  }
  static Array scales(const CodedPages& c, std::uint64_t seed) {
    Array x = random_normal({pool_pages(c), kKvHeads, c.page_size}, seed, 0.5);
    for (double& scale : x.data) scale = std::exp2(scale) / 20;
    for_each_empty_slot(c, [&](std::int64_t page, std::int64_t row) {
      for (std::int64_t h = 0; h < kKvHeads; ++h) {
        x.at(page, h, row) = std::numeric_limits<double>::quiet_NaN();
      }
    });
    return x;
  }
};

void check_coded_pages(Context& ctx, const CodedPages& c) {
  SCOPED_TRACE(testing::Message() << name(c.stored) << " " << name(c.dtype) << " dim " << c.dim
                                  << " pages of " << c.page_size << " " << c.mask.to_string()
                                  << " hole " << c.hole_begin << " " << c.hole_size);
  CodedPool t(ctx, c);
  const reference::AttentionResult exact = reference::attention(t.inputs());
  const double rounding = 2 * epsilon(c.dtype);
  for (int turn = 0; turn < 2; ++turn) {  // the second finds the counters of the first
    attention(ctx, t.args);
    EXPECT_TRUE(close(t.out.read(), exact.out, rounding, rounding));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
    EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
  }
}

TEST_P(HopperDecodeCodesTest, PagesAndLengths) {
  std::size_t i = 0;
  for (DType stored : kCodeTypes) {
    for (std::int64_t dim : {64, 80, 128}) {
      for (std::int64_t page_size : {16, 32, 48, 64, 96, 256}) {
        for (const Mask& mask : {Mask::causal(), Mask::window(50, 0), Mask::sinks(70, 40)}) {
          check_coded_pages(ctx(), {.stored = stored,
                                    .dtype = i++ % 2 == 0 ? DType::f16 : DType::bf16,
                                    .dim = dim,
                                    .page_size = page_size,
                                    .mask = mask});
        }
      }
    }
  }
}

// Holes that begin and end anywhere, within a step and over many pages.
TEST_P(HopperDecodeCodesTest, Holes) {
  const Hole holes[] = {{4, 5}, {0, 17}, {32, 32}, {70, 3}, {4, 500}, {40, 100}, {64, 64}, {33, 1}};
  const std::int64_t page_sizes[] = {16, 32, 64, 256};
  std::size_t i = 0;
  for (DType stored : kCodeTypes) {
    for (std::int64_t dim : {64, 80, 128}) {
      for (const Hole& hole : holes) {
        check_coded_pages(ctx(), {.stored = stored,
                                  .dtype = i % 3 == 0 ? DType::f16 : DType::bf16,
                                  .dim = dim,
                                  .page_size = page_sizes[i % 4],
                                  .mask = i % 5 == 0 ? Mask::full() : Mask::causal(),
                                  .hole_begin = hole.begin,
                                  .hole_size = hole.size});
        ++i;
      }
    }
  }
}

// A page that is not in the pool shows in the sequence that sees it, and in no other.
TEST_P(HopperDecodeCodesTest, LostPagesAreNaN) {
  for (DType stored : kCodeTypes) {
    for (std::int64_t page_size : {16, 32, 64}) {
      SCOPED_TRACE(testing::Message() << name(stored) << " pages of " << page_size);
      CodedPool t(ctx(), {.stored = stored,
                          .page_size = page_size,
                          .queries = 1,
                          .lengths = {300, 300, 300, 300}});
      Array table = t.table;
      table.at(0, 1) = -1;
      table.at(1, 300 / page_size) = 1e6;  // the last
      table.at(2, 0) = -1;
      const TestTensor lost(ctx(), table, DType::i32);
      t.args.pages.table = lost;
      const auto fails = [&](std::int64_t b, std::int64_t head, std::int64_t d) {
        return std::isnan(t.out.read().at(b, 0, head, d));
      };
      attention(ctx(), t.args);
      for (std::int64_t b = 0; b < 4; ++b) {
        EXPECT_EQ(fails(b, 0, 0), b < 3) << b;
        EXPECT_EQ(fails(b, 11, 127), b < 3) << b;
      }
      t.args.mask = Mask::window(99, 0);  // of the lost pages it reaches the last alone
      attention(ctx(), t.args);
      for (std::int64_t b = 0; b < 4; ++b) EXPECT_EQ(fails(b, 5, 77), b == 1) << b;
    }
  }
}

// ---- ragged batches -----------------------------------------------------------------------------

// Scales begin anywhere, and the rows behind a sequence's last key are the next one's.
TEST_P(HopperDecodeCodesTest, RaggedBatches) {
  const std::vector<std::int64_t> q_at = offsets_of({1, 1, 0, 2, 1, 1, 1});
  const std::vector<std::int64_t> k_at = offsets_of({33, 1, 5, 701, 64, 127, 258});
  const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
  const TestTensor k_offsets(ctx(), array_of(k_at), DType::i32);
  for (DType stored : kCodeTypes) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t dim : {64, 80, 128}) {
        AttentionTensors t(ctx(), {.n_q = q_at.back(),
                                   .n_k = k_at.back(),
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .dim = dim,
                                   .mask = Mask::causal(),
                                   .dtype = dtype,
                                   .stored = stored});
        t.args.q_offsets = q_offsets;
        t.args.k_offsets = k_offsets;
        reference::AttentionInputs in = t.inputs();
        in.q_offsets = q_at;
        in.k_offsets = k_at;
        const reference::AttentionResult exact = reference::attention(in);
        attention(ctx(), t.args);
        const double rounding = 2 * epsilon(dtype);
        EXPECT_TRUE(close(t.out.read(), exact.out, rounding, rounding));
        EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
        EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
      }
    }
  }
}

// ---- the rest -----------------------------------------------------------------------------------

// The same bits every time, whoever comes last.
TEST_P(HopperDecodeCodesTest, TwiceTheSameBits) {
  for (DType stored : kCodeTypes) {
    for (std::int64_t dim : {64, 80, 128}) {
      AttentionTensors t(ctx(), {.batch = 7,
                                 .n_q = 1,
                                 .n_k = 6001,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .dim = dim,
                                 .dtype = DType::bf16,
                                 .stored = stored});
      attention(ctx(), t.args);
      const Array first = t.out.read();
      for (int turn = 0; turn < 5; ++turn) {
        attention(ctx(), t.args);
        EXPECT_TRUE(identical(t.out.read(), first));
      }
    }
  }
}

TEST_P(HopperDecodeCodesTest, LeavesWhatItCannotDoToOthers) {
  const auto takes = [&](const AttentionCase& c) {
    const AttentionTensors t(ctx(), c);
    for (const std::string kernel : cuda::attention_kernels(ctx(), t.args)) {
      if (kernel == kCodedDecode) return true;
    }
    return false;
  };
  for (std::int64_t dim : {64, 80, 128}) {
    AttentionCase c{.n_q = 1,
                    .n_k = 300,
                    .heads = 4,
                    .kv_heads = 4,
                    .dim = dim,
                    .dtype = DType::bf16,
                    .stored = DType::i8};
    EXPECT_TRUE(takes(c)) << dim;
    AttentionCase odd = c, scattered = c, capped = c;
    odd.heads = odd.kv_heads = 3;
    scattered.layout = Layout::permuted;
    capped.softcap = 3.f;
    // Two heads in a row, but at D 128.
    EXPECT_EQ(takes(odd), dim == 128);
    EXPECT_EQ(takes(scattered), dim == 128);
    EXPECT_FALSE(takes(capped));
  }
}

}  // namespace
}  // namespace tessera::test
