#include "tessera/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/logprobs.h"
#include "reference/select.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

struct LogprobsCase {
  Array logits;
  std::vector<std::int32_t> rows, ids;
  std::int64_t top = 0;
  Layout layout = Layout::contiguous;
};

struct LogprobsResult {
  Array logprobs, top_ids, top_logprobs;
};

Array whole_numbers(const std::vector<std::int32_t>& values) {
  Array array({std::ssize(values)});
  for (std::size_t i = 0; i < values.size(); ++i) array.data[i] = values[i];
  return array;
}

LogprobsResult reported(Context& ctx, const LogprobsCase& c) {
  const std::int64_t draws = std::ssize(c.rows);
  const TestTensor logits(ctx, c.logits, DType::f32, c.layout);
  const TestTensor rows(ctx, whole_numbers(c.rows), DType::i32, c.layout);
  const TestTensor ids(ctx, whole_numbers(c.ids), DType::i32, c.layout);
  const TestTensor of_ids = TestTensor::poisoned(ctx, {draws}, DType::f32, c.layout);
  const TestTensor top_ids = TestTensor::poisoned(ctx, {draws, c.top}, DType::i32, c.layout);
  const TestTensor of_top = TestTensor::poisoned(ctx, {draws, c.top}, DType::f32, c.layout);
  LogprobsArgs args{.logits = logits, .rows = rows, .ids = ids, .logprobs = of_ids};
  if (c.top > 0) {
    args.top_ids = top_ids;
    args.top_logprobs = of_top;
  }
  logprobs(ctx, args);
  EXPECT_TRUE(logits.untouched());
  EXPECT_TRUE(ids.untouched());
  EXPECT_TRUE(of_ids.surroundings_intact());
  EXPECT_TRUE(top_ids.surroundings_intact());
  EXPECT_TRUE(of_top.surroundings_intact());
  return {of_ids.read(), top_ids.read(), of_top.read()};
}

void check_logprobs(Context& ctx, const LogprobsCase& c) {
  const LogprobsResult actual = reported(ctx, c);
  const Array logits = TestTensor(ctx, c.logits, DType::f32).read();
  const reference::Selected top = reference::top_k(logits, c.top);
  for (std::int64_t d = 0; d < std::ssize(c.rows); ++d) {
    const std::int64_t row = c.rows[static_cast<std::size_t>(d)];
    const std::vector<double> expected =
        reference::logprobs({logits.row(row), logits.row(row) + logits.size(-1)});
    const auto of = [&](double id) { return expected[static_cast<std::size_t>(id)]; };
    EXPECT_NEAR(actual.logprobs.at(d), of(c.ids[static_cast<std::size_t>(d)]), 1e-5);
    for (std::int64_t j = 0; j < c.top; ++j) {
      EXPECT_EQ(actual.top_ids.at(d, j), top.indices.at(row, j)) << "draw " << d << " top " << j;
      EXPECT_NEAR(actual.top_logprobs.at(d, j), of(top.indices.at(row, j)), 1e-5);
    }
  }
}

LogprobsCase five_draws(std::int64_t n, std::int64_t top, Layout layout = Layout::contiguous) {
  const auto last = static_cast<std::int32_t>(n - 1);
  return {.logits = random_normal({3, n}, 9, 3.0),
          .rows = {2, 0, 0, 1, 2},
          .ids = {0, last, last / 2, 0, last},
          .top = top,
          .layout = layout};
}

class LogprobsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LogprobsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(LogprobsTest, OddSizes) {
  for (const std::int64_t n : {1, 2, 63, 1025, 2049, 16401}) {
    for (const std::int64_t top : {0, 1, 5, 20}) {
      SCOPED_TRACE(testing::Message() << n << " top " << top);
      check_logprobs(ctx(), five_draws(n, std::min(top, n)));
    }
  }
}

TEST_P(LogprobsTest, Layouts) {
  for (const Layout layout : kLayouts) check_logprobs(ctx(), five_draws(533, 7, layout));
}

TEST_P(LogprobsTest, TiesGoToTheLowerIds) {
  LogprobsCase c = five_draws(5003, 20);
  c.logits = Array({3, 5003}, -1.25);
  check_logprobs(ctx(), c);
}

TEST_P(LogprobsTest, ForbiddenTokensHaveNoProbability) {
  LogprobsCase c = five_draws(40, 3);
  c.logits.at(0, 39) = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(reported(ctx(), c).logprobs.at(1), -std::numeric_limits<double>::infinity());
}

TEST_P(LogprobsTest, RowsAndIdsThatHaveNone) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  LogprobsCase c = five_draws(2100, 4);
  c.logits = random_normal({4, 2100}, 3, 3.0);
  c.rows = {0, 1, 2, -1, 4, 3, 3};
  c.ids = {0, 0, 0, 0, 0, -1, 2100};
  c.logits.at(0, 2099) = NAN;
  c.logits.at(1, 1) = kInf;
  for (std::int64_t i = 0; i < 2100; ++i) c.logits.at(2, i) = -kInf;
  const LogprobsResult actual = reported(ctx(), c);
  for (std::int64_t d = 0; d < 7; ++d) {
    EXPECT_TRUE(std::isnan(actual.logprobs.at(d))) << "draw " << d;
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(actual.top_ids.at(d, j) == -1, d < 5) << "draw " << d;
      EXPECT_EQ(std::isnan(actual.top_logprobs.at(d, j)), d < 5) << "draw " << d;
    }
  }
}

TEST_P(LogprobsTest, IsTraced) {
  reported(ctx(), five_draws(8, 0));
  EXPECT_EQ(ctx().trace().calls("logprobs", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  EXPECT_EQ(ctx().trace().entries().front().shapes, "logits f32[3, 8] ids i32[5]");
}

TEST_P(LogprobsTest, RefusesBeforeWriting) {
  const std::vector<Refusal<LogprobsArgs>> refusals = {
      {[](LogprobsArgs& a) { a.logits = {}; }, "logprobs: logits was not given"},
      {[](LogprobsArgs& a) { a.ids.dtype = DType::i64; }, "logprobs: ids is i64; accepted: i32"},
      {[](LogprobsArgs& a) { a.logprobs.shape[0] = 1; },
       "logprobs: logprobs must have shape [2], got f32[1]"},
      {[](LogprobsArgs& a) { a.top_ids = {}; },
       "logprobs: top_ids and top_logprobs go together: give both, or none"},
      {[](LogprobsArgs& a) { a.logits.shape[1] = 2; },
       "logprobs: top_ids asks for the 3 most likely of 2 tokens"},
      {[](LogprobsArgs& a) { a.logits.shape[0] = 0; },
       "logprobs: logits f32[0, 5] is empty: it has no tokens"},
      {[](LogprobsArgs& a) { a.logprobs.data = a.logits.data; },
       "logprobs: logprobs overlaps the memory of logits"},
  };
  for (const Refusal<LogprobsArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const TestTensor logits(ctx(), random_normal({3, 5}, 1), DType::f32);
    const TestTensor two(ctx(), whole_numbers({0, 1}), DType::i32);
    const TestTensor out = TestTensor::poisoned(ctx(), {2}, DType::f32);
    const TestTensor top_ids = TestTensor::poisoned(ctx(), {2, 3}, DType::i32);
    const TestTensor top = TestTensor::poisoned(ctx(), {2, 3}, DType::f32);
    LogprobsArgs args{.logits = logits,
                      .rows = two,
                      .ids = two,
                      .logprobs = out,
                      .top_ids = top_ids,
                      .top_logprobs = top};
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { logprobs(ctx(), args); }, refusal.text, refusal.code));
    EXPECT_TRUE(out.untouched() && top_ids.untouched() && top.untouched());
  }
}

}  // namespace
}  // namespace tessera::test
