#include "tessera/adjust_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/adjust_logits.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/word_tensor.h"
#include "tessera/token_counts.h"

namespace tessera::test {
namespace {

using reference::TokenCount;

Array numbers(const std::vector<std::int32_t>& values) {
  Array array({std::ssize(values)});
  for (std::size_t i = 0; i < values.size(); ++i) array.data[i] = values[i];
  return array;
}

struct AdjustedDraw {
  std::int32_t row = 0, slot = -1;
  std::vector<std::pair<std::int32_t, float>> bias{};
  Penalties penalties{};
};

struct AdjustCase {
  Array logits;
  std::vector<AdjustedDraw> draws;
  Array counts{};  // [slots, n]; none: no penalties are passed
  bool with_bias = true;
  Layout layout = Layout::contiguous;
};

// Counts of every kind, mostly none.
Array random_counts(std::int64_t slots, std::int64_t n) {
  Array counts = random_integers({slots, n}, 17, 0, 12);
  for (double& count : counts.data) {
    if (count == 1) count = kInPrompt;
    if (count == 2) count = double{kInPrompt} + 3;
    if (count > 5) count = 0;
  }
  return counts;
}

Array adjusted(Context& ctx, const AdjustCase& c) {
  std::vector<std::int32_t> rows, slots, begin = {0}, bias_ids;
  std::vector<Penalties> penalties;
  Array bias({0});
  for (const AdjustedDraw& draw : c.draws) {
    rows.push_back(draw.row);
    slots.push_back(draw.slot);
    penalties.push_back(draw.penalties);
    for (const auto& [id, value] : draw.bias) {
      bias_ids.push_back(id);
      bias.data.push_back(value);
    }
    begin.push_back(static_cast<std::int32_t>(bias_ids.size()));
  }
  bias.shape = {std::ssize(bias.data)};
  const auto i32 = [&](const std::vector<std::int32_t>& values) {
    return TestTensor(ctx, numbers(values), DType::i32, c.layout);
  };
  const TestTensor logits(ctx, c.logits, DType::f32, c.layout);
  const TestTensor row_tensor = i32(rows), slot_tensor = i32(slots), begin_tensor = i32(begin),
                   id_tensor = i32(bias_ids), bias_tensor(ctx, bias, DType::f32, c.layout);
  const Array no_counts({1, c.logits.size(-1)});
  const TestTensor counts(ctx, c.counts.empty() ? no_counts : c.counts, DType::i32, c.layout);
  const WordTensor<Penalties> penalty_tensor(ctx, penalties,
                                             c.layout == Layout::contiguous ? 0 : 2);
  const TestTensor out =
      TestTensor::poisoned(ctx, {std::ssize(c.draws), c.logits.size(-1)}, DType::f32, c.layout);
  AdjustLogitsArgs args{.logits = logits, .rows = row_tensor, .out = out};
  if (c.with_bias) {
    args.bias_begin = begin_tensor;
    args.bias_ids = id_tensor;
    args.bias = bias_tensor;
  }
  if (!c.counts.empty()) {
    args.penalties = penalty_tensor;
    args.slots = slot_tensor;
    args.counts = counts;
  }
  adjust_logits(ctx, args);
  EXPECT_TRUE(out.surroundings_intact());
  EXPECT_TRUE(logits.untouched());
  EXPECT_TRUE(counts.untouched());
  return out.read();
}

// By the twin. Its input is rounded to f32, as the op's.
Array expected_logits(Context& ctx, const AdjustCase& c) {
  const Array logits = TestTensor(ctx, c.logits, DType::f32).read();
  const std::int64_t n = logits.size(-1);
  Array out({std::ssize(c.draws), n});
  for (std::int64_t d = 0; d < std::ssize(c.draws); ++d) {
    const AdjustedDraw& draw = c.draws[static_cast<std::size_t>(d)];
    std::vector<std::pair<std::int64_t, double>> bias;
    if (c.with_bias) bias.assign(draw.bias.begin(), draw.bias.end());
    std::vector<TokenCount> counts;
    for (std::int64_t i = 0; i < n && !c.counts.empty() && draw.slot >= 0; ++i) {
      const auto count = static_cast<std::int32_t>(c.counts.at(draw.slot, i));
      counts.push_back({count < 0, count & ~kInPrompt});
    }
    const double* row = logits.row(draw.row);
    const std::vector<double> values = reference::adjusted_logits(
        {row, row + n}, bias,
        {draw.penalties.repetition, draw.penalties.presence, draw.penalties.frequency}, counts);
    std::copy(values.begin(), values.end(), out.row(d));
  }
  return out;
}

// A GPU must have the CPU's bits, and both must be near the twin.
void check_adjusted(Context& ctx, const AdjustCase& c) {
  const Array actual = adjusted(ctx, c);
  EXPECT_TRUE(close(actual, expected_logits(ctx, c), 1e-6, 1e-6));
  Context cpu({.threads = 2});
  EXPECT_TRUE(identical(actual, adjusted(cpu, c)));
}

AdjustCase every_kind(std::int64_t n, Layout layout = Layout::contiguous) {
  const auto id = [&](std::int64_t i) { return static_cast<std::int32_t>(i % n); };
  AdjustCase c{.logits = random_normal({3, n}, 5, 4.0), .draws = {}};
  c.counts = random_counts(2, n);
  c.layout = layout;
  c.draws = {
      {.row = 2},
      {.row = 0, .slot = 1, .penalties = {1.3, 0.5, 0.1}},
      {.row = 0, .bias = {{id(n - 1), 3.5f}}},
      {.row = 1, .slot = 0, .bias = {{0, -2.f}}, .penalties = {0.7, -0.25, 0.3}},
      {.row = 1, .slot = 1, .penalties = {}},
      {.row = 2, .slot = 0, .penalties = {1.0, 0.0, 1.7}},
  };
  if (n > 100) c.draws[3].bias = {{id(n / 2), 1.25f}, {id(7), -0.125f}, {id(n - 3), 0.1f}};
  return c;
}

class AdjustLogitsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AdjustLogitsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(AdjustLogitsTest, OddSizesAndEveryKindOfDraw) {
  for (const std::int64_t n : {1, 2, 63, 257, 2047, 2049, 4100}) {
    SCOPED_TRACE(n);
    check_adjusted(ctx(), every_kind(n));
  }
}

TEST_P(AdjustLogitsTest, Layouts) {
  for (const Layout layout : kLayouts) check_adjusted(ctx(), every_kind(533, layout));
}

TEST_P(AdjustLogitsTest, OnlyBiasOnlyPenaltiesOrNeither) {
  AdjustCase c = every_kind(301);
  c.with_bias = false;
  check_adjusted(ctx(), c);
  c.counts = {};
  check_adjusted(ctx(), c);
  c.with_bias = true;
  check_adjusted(ctx(), c);
}

TEST_P(AdjustLogitsTest, ForbiddenTokensAndOddLogits) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  AdjustCase c{.logits = Array({1, 5}), .draws = {}};
  c.logits.data = {1, -kInf, kInf, NAN, -2};
  c.draws = {{.slot = 0,
              .bias = {{0, -std::numeric_limits<float>::infinity()}},
              .penalties = {2.0, 1.0, 0.0}}};
  c.counts = Array({1, 5}, 1.0);
  const Array out = adjusted(ctx(), c);
  for (const std::int64_t i : {0, 1}) EXPECT_EQ(out.at(0, i), -kInf);
  EXPECT_EQ(out.at(0, 2), kInf);
  EXPECT_TRUE(std::isnan(out.at(0, 3)));
  EXPECT_EQ(out.at(0, 4), -5);
}

// What is not there: rows give NaN, slots and ids nothing.
TEST_P(AdjustLogitsTest, RowsSlotsAndIdsThatDoNotExist) {
  AdjustCase c = every_kind(40);
  c.draws = {{.row = -1}, {.row = 3}, {.row = 1, .slot = 2, .penalties = {9, 9, 9}}};
  c.draws.push_back({.row = 1, .bias = {{-1, 5.f}, {40, 5.f}, {3, 5.f}}});
  const Array out = adjusted(ctx(), c);
  const Array logits = TestTensor(ctx(), c.logits, DType::f32).read();
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::isnan(out.at(0, i)) && std::isnan(out.at(1, i)));
    EXPECT_EQ(out.at(2, i), logits.at(1, i));
    const float biased = static_cast<float>(logits.at(1, i)) + (i == 3 ? 5.f : 0.f);
    EXPECT_EQ(out.at(3, i), biased);
  }
}

TEST_P(AdjustLogitsTest, RefusesBeforeWriting) {
  const std::vector<Refusal<AdjustLogitsArgs>> refusals = {
      {[](AdjustLogitsArgs& a) { a.logits = {}; }, "adjust_logits: logits was not given"},
      {[](AdjustLogitsArgs& a) { a.rows = {}; }, "adjust_logits: rows was not given"},
      {[](AdjustLogitsArgs& a) { a.out.shape[1] = 4; },
       "adjust_logits: out must have shape [2, 5], got f32[2, 4] with strides [5, 1]"},
      {[](AdjustLogitsArgs& a) { a.bias = {}; },
       "adjust_logits: bias_begin, bias_ids and bias go together: give all three, or none"},
      {[](AdjustLogitsArgs& a) { a.counts = {}; },
       "adjust_logits: penalties, slots and counts go together: give all three, or none"},
      {[](AdjustLogitsArgs& a) { a.bias_begin.shape[0] = 2; },
       "adjust_logits: bias_begin must have shape [3], got i32[2]"},
      {[](AdjustLogitsArgs& a) { a.counts.shape[1] = 4; },
       "adjust_logits: counts must have shape [any, 5], got i32[1, 4]"},
      {[](AdjustLogitsArgs& a) { a.penalties.shape[1] = 2; },
       "adjust_logits: penalties must have shape [2, 3], got i64[2, 2] with strides [3, 1]"},
      {[](AdjustLogitsArgs& a) { a.out.data = a.logits.data; },
       "adjust_logits: out overlaps the memory of logits"},
  };
  for (const Refusal<AdjustLogitsArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const TestTensor logits(ctx(), random_normal({3, 5}, 1), DType::f32);
    const TestTensor two(ctx(), numbers({0, 0}), DType::i32);
    const TestTensor three(ctx(), numbers({0, 1, 2}), DType::i32);
    const TestTensor bias(ctx(), Array({2}, 1.0), DType::f32);
    const TestTensor counts(ctx(), Array({1, 5}), DType::i32);
    const WordTensor<Penalties> penalties(ctx(), {{}, {}});
    const TestTensor out = TestTensor::poisoned(ctx(), {2, 5}, DType::f32);
    AdjustLogitsArgs args{.logits = logits,
                          .rows = two,
                          .bias_begin = three,
                          .bias_ids = two,
                          .bias = bias,
                          .penalties = penalties,
                          .slots = two,
                          .counts = counts,
                          .out = out};
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { adjust_logits(ctx(), args); }, refusal.text, refusal.code));
    EXPECT_TRUE(out.untouched());
  }
}

// ---- counts -------------------------------------------------------------------------------------

class TokenCountsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, TokenCountsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(TokenCountsTest, FillsOneSlotAndLeavesTheOthers) {
  for (const Layout layout : kLayouts) {
    for (const std::int64_t n : {5, 257, 1030}) {
      const TestTensor counts = TestTensor::poisoned(ctx(), {3, n}, DType::i32, layout);
      const Array before = counts.read();
      const TestTensor prompt(ctx(), numbers({4, 0, 4, -1, static_cast<std::int32_t>(n)}),
                              DType::i32, layout);
      fill_counts(ctx(), {.counts = counts, .slot = 1, .ids = prompt});
      Array expected = before;
      for (std::int64_t i = 0; i < n; ++i) expected.at(1, i) = i == 0 || i == 4 ? kInPrompt : 0;
      EXPECT_TRUE(identical(counts.read(), expected));

      const TestTensor ids(ctx(), numbers({3, 2}), DType::i32, layout);
      const TestTensor values(ctx(), numbers({7, kInPrompt + 2}), DType::i32, layout);
      fill_counts(ctx(), {.counts = counts, .slot = 1, .ids = ids, .values = values});
      for (std::int64_t i = 0; i < n; ++i) {
        expected.at(1, i) = i == 3 ? 7 : i == 2 ? kInPrompt + 2 : 0;
      }
      EXPECT_TRUE(identical(counts.read(), expected));
      fill_counts(ctx(), {.counts = counts, .slot = 1});
      for (std::int64_t i = 0; i < n; ++i) expected.at(1, i) = 0;
      EXPECT_TRUE(identical(counts.read(), expected));
      EXPECT_TRUE(counts.surroundings_intact());
    }
  }
}

TEST_P(TokenCountsTest, CountsDrawnTokensInTheirSlots) {
  for (const Layout layout : kLayouts) {
    Array expected = random_counts(4, 301);
    const TestTensor counts(ctx(), expected, DType::i32, layout);
    // More draws than a block has threads; some draw the same token in the same slot.
    std::vector<std::int32_t> ids, slots;
    for (std::int32_t d = 0; d < 700; ++d) {
      ids.push_back(d % 7 == 0 ? -1 : d % 11 == 0 ? 301 : d * 13 % 301);
      slots.push_back(d % 5 == 0 ? -1 : d % 17 == 0 ? 4 : d % 4);
      if (ids.back() < 0 || ids.back() > 300 || slots.back() < 0 || slots.back() > 3) continue;
      expected.at(slots.back(), ids.back()) += 1;
    }
    const TestTensor id_tensor(ctx(), numbers(ids), DType::i32, layout);
    const TestTensor slot_tensor(ctx(), numbers(slots), DType::i32, layout);
    count_tokens(ctx(), {.counts = counts, .ids = id_tensor, .slots = slot_tensor});
    EXPECT_TRUE(identical(counts.read(), expected));
    EXPECT_TRUE(counts.surroundings_intact());
  }
}

TEST_P(TokenCountsTest, Refuses) {
  const TestTensor counts = TestTensor::poisoned(ctx(), {3, 5}, DType::i32);
  const TestTensor two(ctx(), numbers({0, 0}), DType::i32);
  const TestTensor three(ctx(), numbers({0, 1, 2}), DType::i32);
  EXPECT_TRUE(refuses([&] { fill_counts(ctx(), {.counts = counts, .slot = 3}); },
                      "fill_counts: slot is 3; counts has the slots 0 to 2"));
  EXPECT_TRUE(refuses([&] { fill_counts(ctx(), {.counts = counts, .values = two}); },
                      "fill_counts: values were given without ids"));
  EXPECT_TRUE(refuses([&] { fill_counts(ctx(), {.counts = counts, .ids = two, .values = three}); },
                      "fill_counts: values must have the shape of ids, i32[2], got i32[3]"));
  EXPECT_TRUE(refuses([&] { count_tokens(ctx(), {.counts = counts, .ids = two, .slots = three}); },
                      "count_tokens: slots must have the shape of ids, i32[2], got i32[3]"));
  EXPECT_TRUE(refuses([&] { count_tokens(ctx(), {.counts = {}, .ids = two, .slots = two}); },
                      "count_tokens: counts was not given"));
  EXPECT_TRUE(counts.untouched());
}

}  // namespace
}  // namespace tessera::test
