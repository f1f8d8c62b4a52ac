// Few queries over keys that are rotated as they are read: the kernel that rotates them in
// registers, beside every other one that takes such a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "reference/rotary.h"
#include "reference/rounding.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"
#include "tessera/rotary.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

constexpr const char* kRotatedKernel = "cuda.split.rotated";

class AttentionRotatedTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionRotatedTest, testing::ValuesIn(test_devices()),
                         device_name);

Array frequencies_of(std::int64_t dims) {
  const std::vector<float> frequencies = rope_inv_freq(dims);
  Array array({dims / 2});
  std::copy(frequencies.begin(), frequencies.end(), array.data.begin());
  return array;
}

struct Rotated {
  AttentionCase c;
  std::int64_t dims;  // that are rotated
  RopeStyle style = RopeStyle::half_split;
};

// The measure: keys that were rotated before, rounded, and used by the simplest attention.
Array plain_result(const reference::AttentionInputs& in, const Rotated& rotated) {
  reference::AttentionInputs before = in;
  before.inv_freq = Array();
  Array positions({in.k.size(1)});
  std::iota(positions.data.begin(), positions.data.end(), 0.0);
  before.k = reference::rounded(reference::rotary(in.k, positions, in.inv_freq, rotated.style),
                                rotated.c.dtype);
  return plain_attention(before, rotated.c.dtype);
}

void check_rotated(Context& ctx, const Rotated& rotated) {
  SCOPED_TRACE(testing::Message() << rotated.c.text() << " rotated " << rotated.dims << " style "
                                  << static_cast<int>(rotated.style));
  const Array inv_freq = frequencies_of(rotated.dims);
  const TestTensor frequency_tensor(ctx, inv_freq, DType::f32);
  AttentionTensors t(ctx, rotated.c);
  t.args.rope_on_read = {frequency_tensor, rotated.style};
  reference::AttentionInputs in = t.inputs();
  in.inv_freq = inv_freq;
  in.rope_style = rotated.style;
  const reference::AttentionResult exact = reference::attention(in);
  const Array plain = plain_result(in, rotated);
  for_each_attention_kernel(ctx, t.args, [&] {
    AttentionTensors fresh(ctx, rotated.c);
    fresh.args.rope_on_read = t.args.rope_on_read;
    attention(ctx, fresh.args);
    EXPECT_TRUE(good(fresh.out.read(), exact.out, plain));
    EXPECT_TRUE(close(fresh.lse.read(), exact.lse, 0.2 * epsilon(rotated.c.dtype),
                      2 * epsilon(rotated.c.dtype)));
    EXPECT_TRUE(fresh.out.surroundings_intact() && fresh.lse.surroundings_intact());
    EXPECT_TRUE(fresh.q.untouched() && fresh.k.untouched() && fresh.v.untouched());
  });
}

// Rows of one key head, as queries and heads that share it.
struct SharedRows {
  std::int64_t n_q, group;
};

// All dims rotated, a part that is whole steps of mma.sync, and parts that are not.
TEST_P(AttentionRotatedTest, HeadDimsPairsRowsAndMasks) {
  constexpr SharedRows kRows[] = {{1, 1}, {1, 4}, {1, 8}, {3, 3}, {1, 16}, {2, 6}, {16, 1}};
  const Mask masks[] = {Mask::causal(), Mask::window(40, 0), Mask::full(), Mask::sinks(5, 90)};
  constexpr struct {
    std::int64_t dim, dims;
  } kDims[] = {{64, 64}, {64, 16}, {80, 80},   {80, 20},  {96, 96}, {96, 24},
               {8, 4},   {72, 72}, {128, 128}, {128, 32}, {40, 12}, {120, 100}};
  Thinned thinned(7);
  std::size_t i = 0;
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
      for (const auto& [dim, dims] : kDims) {
        for (std::int64_t n_k : {1, 17, 300}) {
          const auto& [n_q, group] = kRows[n_k == 1 ? i % 3 : i % std::size(kRows)];
          const Mask& mask = masks[i++ % std::size(masks)];
          if (!thinned.takes_next()) continue;
          check_rotated(ctx(), {.c = {.batch = 2,
                                      .n_q = std::min(n_q, n_k),
                                      .n_k = n_k,
                                      .heads = 2 * group,
                                      .kv_heads = 2,
                                      .dim = dim,
                                      .mask = mask,
                                      .dtype = dtype},
                                .dims = dims,
                                .style = style});
        }
      }
    }
  }
}

// Many blocks, steps and rotations; positions at which an angle is a thousand turns.
TEST_P(AttentionRotatedTest, ManyKeys) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (std::int64_t dim : {80, 128}) {
      check_rotated(ctx(), {.c = {.n_q = 1,
                                  .n_k = kSanitized ? 3000 : 9001,
                                  .heads = 4,
                                  .kv_heads = 1,
                                  .dim = dim,
                                  .mask = Mask::causal(),
                                  .dtype = dtype},
                            .dims = dim});
    }
  }
}

// As attention sinks keep them: pages of any size, holes, sequences without keys.
TEST_P(AttentionRotatedTest, PagesWithHoles) {
  const std::vector<std::int64_t> lengths{300, 17, 1, 0, 64};
  const std::vector<Hole> holes{{4, 37}, {4, 5}, {0, 0}, {4, 0}, {16, 32}};
  const Array inv_freq = frequencies_of(80), keys = random_normal({5, 300, 2, 80}, 5);
  const Array values = random_normal({5, 300, 2, 80}, 6);
  const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (std::int64_t page_size : {3, 16, 64}) {
      for (bool with_holes : {false, true}) {
        const AttentionCase c{.batch = 5,
                              .n_q = 1,
                              .n_k = 300,
                              .heads = 8,
                              .kv_heads = 2,
                              .dim = 80,
                              .mask = Mask::causal(),
                              .dtype = dtype};
        AttentionTensors t(ctx(), c);
        const Paged paged(ctx(), page_size, lengths, keys, values, dtype, Layout::contiguous,
                          with_holes ? holes : std::vector<Hole>{});
        paged.put_into(t.args);
        t.args.rope_on_read = {frequency_tensor, RopeStyle::half_split};
        reference::AttentionInputs in = t.inputs();
        in.k = paged.k_pool->read();
        in.v = paged.v_pool->read();
        in.page_table = paged.table;
        in.lengths = array_of(lengths);
        if (with_holes) in.holes = paged.hole_values;
        in.inv_freq = inv_freq;
        const reference::AttentionResult exact = reference::attention(in);
        for_each_attention_kernel(ctx(), t.args, [&] {
          attention(ctx(), t.args);
          const double unit = epsilon(dtype);
          EXPECT_TRUE(close(t.out.read(), exact.out, 2 * unit, unit));
          EXPECT_TRUE(close(t.lse.read(), exact.lse, 0.2 * unit, 2 * unit));
        });
      }
    }
  }
}

// A page that is not in the pool shows as NaN.
TEST_P(AttentionRotatedTest, LostPagesShow) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "of a GPU: the CPU checks the table";
  const TestTensor frequency_tensor(ctx(), frequencies_of(64), DType::f32);
  for (double page : {1.0, 7.0, -1.0}) {
    AttentionTensors t(ctx(), {.n_q = 1, .n_k = 32, .mask = Mask::causal(), .dtype = DType::f16});
    const TestTensor k(ctx(), random_normal({2, 16, 2, 64}, 1), DType::f16);
    const TestTensor v(ctx(), random_normal({2, 16, 2, 64}, 2), DType::f16);
    Array table({1, 2}), length({1});
    table.at(0, 1) = page;
    length.at(0) = 20;
    const TestTensor pages(ctx(), table, DType::i32), lengths(ctx(), length, DType::i32);
    t.args.k = k;
    t.args.v = v;
    t.args.pages = {pages, lengths};
    t.args.rope_on_read = {frequency_tensor, RopeStyle::half_split};
    for_each_attention_kernel(ctx(), t.args, [&] {
      attention(ctx(), t.args);
      EXPECT_EQ(std::isnan(t.out.read().at(0, 0, 0, 63)), page != 1.0);
    });
  }
}

TEST_P(AttentionRotatedTest, TheTraceTellsWhichKernelRan) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "of a GPU";
  const struct {
    Rotated rotated;
    const char* kernel;
  } cases[] = {
      {{{.n_q = 1, .dtype = DType::f16}, 64}, kRotatedKernel},
      {{{.n_q = 1, .dtype = DType::f16}, 10, RopeStyle::interleaved}, kRotatedKernel},
      {{{.n_q = 1, .dtype = DType::f16}, 10}, "cuda.split"},  // an odd number of pairs
      {{{.n_q = 1, .dim = 256, .dtype = DType::f16}, 256}, "cuda.split"},
      {{{.n_q = 1, .dim = 60, .dtype = DType::f16}, 60}, "cuda.split"},
      {{{.n_q = 1, .dtype = DType::f16, .softcap = 3.f}, 64}, "cuda.split"},
      {{{.n_q = 1, .dtype = DType::f16, .scale = -1.f}, 64}, "cuda.split"},
  };
  for (const auto& [rotated, kernel] : cases) {
    const TestTensor frequency_tensor(ctx(), frequencies_of(rotated.dims), DType::f32);
    AttentionTensors t(ctx(), rotated.c);
    t.args.rope_on_read = {frequency_tensor, rotated.style};
    ctx().trace().clear();
    attention(ctx(), t.args);
    EXPECT_EQ(ctx().trace().calls("attention", kernel), 1) << rotated.c.text() << rotated.dims;
  }
}

}  // namespace
}  // namespace tessera::test
