// Few queries over keys and values of 8 bits: the kernel that decodes codes in registers, beside
// every other one that takes such a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/kv_append.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

constexpr const char* kCodesKernel = "cuda.split.codes";

class Attention8BitDecodeTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Attention8BitDecodeTest, testing::ValuesIn(test_devices()),
                         device_name);

// Rows of one key head, as queries and heads that share it.
struct FewRows {
  std::int64_t n_q, group;
};

TEST_P(Attention8BitDecodeTest, HeadDimsLengthsRowsAndMasks) {
  constexpr FewRows kRows[] = {{1, 1}, {1, 16}, {1, 4}, {2, 8}, {1, 7}, {5, 3}, {16, 1}};
  const Mask masks[] = {Mask::causal(), Mask::window(40, 0), Mask::full(), Mask::sinks(5, 90)};
  Thinned thinned(7);
  std::size_t i = 0;
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t dim : {16, 64, 80, 96, 112, 128}) {
        for (std::int64_t n_k : {1, 15, 16, 17, 300}) {
          const auto& [n_q, group] = kRows[n_k == 1 ? i % 3 : i % std::size(kRows)];
          const Mask& mask = masks[i++ % std::size(masks)];
          if (!thinned.takes_next()) continue;
          // The measure is the largest error of the plain version: of few numbers that is luck.
          check_attention_case(ctx(), {.batch = n_k < 20 ? 8 : 2,
                                       .n_q = std::min(n_q, n_k),
                                       .n_k = n_k,
                                       .heads = 2 * group,
                                       .kv_heads = 2,
                                       .dim = dim,
                                       .mask = mask,
                                       .dtype = dtype,
                                       .stored = stored});
        }
      }
    }
  }
}

// So many keys that a sequence has many blocks and a warp of each more steps than its ring has
// stages.
TEST_P(Attention8BitDecodeTest, ManyKeys) {
  // Under a sanitizer only the CPU runs this: a dozen chunks of keys, one block of narrow heads and
  // two of wide heads.
  constexpr std::int64_t kKeys = kSanitized ? 1500 : 9001, kHeads = kSanitized ? 20 : 32;
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    for (std::int64_t dim : {64, 128}) {
      check_attention_case(ctx(), {.n_q = 1,
                                   .n_k = kKeys,
                                   .heads = kHeads,
                                   .kv_heads = kHeads,
                                   .dim = dim,
                                   .mask = Mask::causal(),
                                   .dtype = DType::bf16,
                                   .stored = stored});
    }
  }
}

// ---- pages -------------------------------------------------------------------------------------

struct Decoding {
  std::int64_t queries, keys, hole_begin = 1000, hole_size = 0;
};

struct PagedDecodeCase {
  DType stored = DType::i8, dtype = DType::bf16;
  std::int64_t dim = 128, page_size = 16, group = 4;
  Mask mask = Mask::causal();
  std::vector<Decoding> sequences{{1, 300}, {1, 17}, {1, 1}, {1, 0}, {1, 64}};
};

constexpr std::int64_t kDecodeKvHeads = 2;

// Codes and scales of a pool.
struct DrawnPool {
  DrawnPool(Context& ctx, const PagedDecodeCase& c, std::int64_t pages, std::uint64_t seed)
      : codes(ctx, drawn_codes(c, pages, seed), c.stored),
        scales(ctx, drawn_scales(c, pages, seed + 1), DType::f32) {}
  Array values() const { return reference::decoded({codes.read(), scales.read()}); }

  TestTensor codes, scales;

 private:
  static Array drawn_codes(const PagedDecodeCase& c, std::int64_t pages, std::uint64_t seed) {
    Array x = random_normal({pages, c.page_size, kDecodeKvHeads, c.dim}, seed, 20);
    if (c.stored != DType::i8) return x;
    for (double& code : x.data) code = std::clamp(std::round(code), -127.0, 127.0);
    return x;
  }
  static Array drawn_scales(const PagedDecodeCase& c, std::int64_t pages, std::uint64_t seed) {
    Array x = random_normal({pages, kDecodeKvHeads, c.page_size}, seed, 0.5);
    for (double& scale : x.data) scale = std::exp2(scale) / 20;
    return x;
  }
};

// A ragged batch whose keys are spread over a pool, every third page at a time.
struct PagedDecode {
  PagedDecode(Context& ctx, const PagedDecodeCase& c)
      : table(tables(c)),
        lengths({std::ssize(c.sequences)}),
        holes({std::ssize(c.sequences), 2}),
        k(ctx, c, kPages, 1),
        v(ctx, c, kPages, 3),
        q(ctx, random_normal({1, rows(c), kDecodeKvHeads * c.group, c.dim}, 5), c.dtype),
        out(TestTensor::poisoned(ctx, q.read().shape, c.dtype)),
        lse(TestTensor::poisoned(ctx, {1, kDecodeKvHeads * c.group, rows(c)}, DType::f32)) {
    Array starts({std::ssize(c.sequences) + 1});
    offsets.push_back(0);
    for (std::size_t b = 0; b < c.sequences.size(); ++b) {
      const Decoding& s = c.sequences[b];
      const auto at = static_cast<std::int64_t>(b);
      lengths.at(at) = static_cast<double>(s.keys);
      holes.at(at, 0) = static_cast<double>(s.hole_begin);
      holes.at(at, 1) = static_cast<double>(s.hole_size);
      offsets.push_back(offsets.back() + s.queries);
      starts.at(at + 1) = static_cast<double>(offsets.back());
    }
    tensors.emplace_back(ctx, starts, DType::i32);
    for (const Array* numbers : {&table, &lengths, &holes}) {
      tensors.emplace_back(ctx, *numbers, DType::i32);
    }
    args = {.q = q,
            .k = k.codes,
            .v = v.codes,
            .out = out,
            .lse = lse,
            .mask = c.mask,
            .q_offsets = tensors[0],
            .pages = {tensors[1], tensors[2], tensors[3]},
            .k_scales = k.scales,
            .v_scales = v.scales};
  }
  reference::AttentionInputs inputs() const {
    return {.q = q.read(),
            .k = k.values(),
            .v = v.values(),
            .mask = args.mask,
            .q_offsets = offsets,
            .page_table = table,
            .lengths = lengths,
            .holes = holes};
  }

  static constexpr std::int64_t kPages = 61;
  Array table, lengths, holes;
  DrawnPool k, v;
  TestTensor q, out, lse;
  std::vector<std::int64_t> offsets;
  std::vector<TestTensor> tensors;
  AttentionArgs args;

 private:
  static std::int64_t rows(const PagedDecodeCase& c) {
    std::int64_t sum = 0;
    for (const Decoding& s : c.sequences) sum += s.queries;
    return sum;
  }
  static Array tables(const PagedDecodeCase& c) {
    std::int64_t width = 1;
    for (const Decoding& s : c.sequences) {
      width = std::max(width, (s.keys + s.hole_size + c.page_size - 1) / c.page_size);
    }
    Array table({std::ssize(c.sequences), width}, -7);
    std::int64_t page = 0;
    for (std::int64_t b = 0; b < std::ssize(c.sequences); ++b) {
      const Decoding& s = c.sequences[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i * c.page_size < s.keys + s.hole_size; ++i) {
        table.at(b, i) = static_cast<double>(page++ * 3 % kPages);
      }
    }
    return table;
  }
};

void check_paged_decode(Context& ctx, const PagedDecodeCase& c) {
  SCOPED_TRACE(testing::Message() << name(c.stored) << " " << name(c.dtype) << " dim " << c.dim
                                  << " pages of " << c.page_size << " group " << c.group);
  PagedDecode t(ctx, c);
  const reference::AttentionResult exact = reference::attention(t.inputs());
  for_each_attention_kernel(ctx, t.args, [&] {
    attention(ctx, t.args);
    const double rounding = 2 * epsilon(c.dtype);
    EXPECT_TRUE(close(t.out.read(), exact.out, rounding, rounding));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
    EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
  });
}

TEST_P(Attention8BitDecodeTest, PagesHolesAndRaggedBatches) {
  const std::vector<Decoding> with_holes{{1, 300, 9, 5}, {1, 40, 16, 16}, {2, 35, 20, 30}, {1, 5}};
  const std::vector<Decoding> ragged{{4, 300}, {1, 17}, {0, 33}, {2, 15}, {3, 130}};
  const std::vector<Decoding> prompt{{1, 90}, {20, 70}, {2, 16}};  // too many rows for this kernel
  Thinned thinned(5);
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    for (std::int64_t dim : {64, 80, 96, 128}) {
      for (std::int64_t page_size : {16, 64, 24}) {
        const DType dtype = dim % 64 == 0 ? DType::bf16 : DType::f16;
        for (const auto& sequences : {with_holes, ragged, prompt}) {
          if (!thinned.takes_next()) continue;
          check_paged_decode(ctx(), {.stored = stored,
                                     .dtype = dtype,
                                     .dim = dim,
                                     .page_size = page_size,
                                     .sequences = sequences});
        }
      }
    }
    check_paged_decode(ctx(), {.stored = stored, .dtype = DType::f16});
    check_paged_decode(ctx(), {.stored = stored, .mask = Mask::window(33, 0)});
    check_paged_decode(ctx(), {.stored = stored, .group = 1, .mask = Mask::sinks(3, 100)});
  }
}

// A page that is not in the pool shows, in the rows that see it and in no others.
TEST_P(Attention8BitDecodeTest, LostPagesAreNaN) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "of a GPU: the CPU checks the table";
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    PagedDecode t(ctx(), {.stored = stored, .sequences = {{1, 100}, {1, 100}, {1, 100}}});
    Array table = t.table;
    table.at(0, 2) = -1;
    table.at(1, 6) = 1e6;
    const TestTensor lost(ctx(), table, DType::i32);
    t.args.pages.table = lost;
    for_each_attention_kernel(ctx(), t.args, [&] {
      attention(ctx(), t.args);
      const Array out = t.out.read();
      for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t d : {0, 77}) {
          EXPECT_EQ(std::isnan(out.at(0, row, 5, d)), row < 2) << row << " " << d;
        }
      }
    });
    // Of 36 keys, behind the window, none is lost.
    t.args.mask = Mask::window(35, 0);
    table.at(1, 6) = t.table.at(1, 6);
    const TestTensor behind(ctx(), table, DType::i32);
    t.args.pages.table = behind;
    for_each_attention_kernel(ctx(), t.args, [&] {
      attention(ctx(), t.args);
      EXPECT_FALSE(std::isnan(t.out.read().at(0, 0, 5, 0)));
    });
  }
}

TEST_P(Attention8BitDecodeTest, ASequenceHasTheSameBitsInAnyCompany) {
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    for (std::int64_t prompt_rows : {1, 30}) {  // beside a prompt, another kernel runs too
      PagedDecode t(
          ctx(), {.stored = stored, .sequences = {{1, 300}, {prompt_rows, 65}, {1, 17}, {2, 140}}});
      attention(ctx(), t.args);
      const Array together = t.out.read();
      for (std::int64_t s : {0, 2, 3}) {
        AttentionArgs one = t.args;
        const auto begin = t.offsets[static_cast<std::size_t>(s)];
        const auto end = t.offsets[static_cast<std::size_t>(s) + 1];
        for (Tensor* tensor : {&one.q, &one.out}) *tensor = tensor->slice(1, begin, end);
        one.q_offsets = {};
        one.lse = {};
        one.pages.table = one.pages.table.slice(0, s, s + 1);
        one.pages.lengths = one.pages.lengths.slice(0, s, s + 1);
        one.pages.holes = one.pages.holes.slice(0, s, s + 1);
        attention(ctx(), one);
      }
      EXPECT_TRUE(identical(together, t.out.read()));
    }
  }
}

TEST_P(Attention8BitDecodeTest, TheTraceNamesTheKernel) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "of a GPU";
  const struct {
    AttentionCase c;
    const char* kernel;
  } cases[] = {
      {{.n_q = 1, .heads = 8, .dtype = DType::f16, .stored = DType::i8}, kCodesKernel},
      {{.n_q = 4, .heads = 8, .dim = 80, .dtype = DType::bf16, .stored = DType::f8e4m3},
       kCodesKernel},
      {{.n_q = 1, .dim = 24, .dtype = DType::f16, .stored = DType::i8}, "cuda.split"},
      {{.n_q = 1, .dim = 256, .dtype = DType::f16, .stored = DType::i8}, "cuda.split"},
      {{.n_q = 1, .dtype = DType::f16, .stored = DType::i8, .softcap = 3.f}, "cuda.split"},
      {{.n_q = 1, .dtype = DType::f16, .stored = DType::i8, .scale = -1.f}, "cuda.split"},
      {{.n_q = 1, .dtype = DType::f16}, "cuda.split"},
      {{.n_q = 17, .dtype = DType::f16, .stored = DType::i8}, "cuda.mma"},
  };
  for (const auto& [c, kernel] : cases) {
    AttentionTensors t(ctx(), c);
    ctx().trace().clear();
    attention(ctx(), t.args);
    EXPECT_EQ(ctx().trace().calls("attention", kernel), 1) << c.text();
  }
  // Of a ragged batch, the rows of all sequences together count: with more than 16, another kernel
  // takes long sequences along.
  PagedDecode paged(ctx(), {.sequences = {{1, 300}, {1, 17}}});
  ctx().trace().clear();
  attention(ctx(), paged.args);
  EXPECT_EQ(ctx().trace().calls("attention", kCodesKernel), 1);
}

}  // namespace
}  // namespace tessera::test
