#include "tessera/sample_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "reference/sample.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/word_tensor.h"
#include "tessera/sample.h"

namespace tessera::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Every kind of draw side by side: greedy ones, all tokens, heads by count, by weight and by both.
const std::vector<DrawOptions>& draw_kinds() {
  static const std::vector<DrawOptions> all = {
      {},
      {.temperature = 0},
      {.temperature = 0.3, .seed = 9},
      {.top_k = 7, .seed = 1},
      {.temperature = 40, .draw = 0xffffffffull},
      {.top_p = 0.5, .seed = 4, .draw = 3},
      {.top_k = 1000000},
      {.temperature = 8, .top_p = 0.999},
      {.min_p = 0.1},
      {.temperature = 0, .top_p = 0.1, .top_k = 3},
      {.top_p = 0.8, .min_p = 0.02, .top_k = 40},
      {.temperature = 1.7, .top_p = 0.97, .top_k = 2000, .seed = 5, .draw = 77},
      {.temperature = 1e-300},
      {.top_p = 1e-9},
      {.temperature = 1.1, .seed = ~0ull, .draw = ~0ull},
  };
  return all;
}

struct RowsDraw {
  std::vector<std::int32_t> rows;
  std::vector<DrawOptions> options;
  Layout layout = Layout::contiguous;
};

Array as_array(const std::vector<std::int32_t>& values) {
  Array array({std::ssize(values)});
  for (std::size_t i = 0; i < values.size(); ++i) array.data[i] = values[i];
  return array;
}

std::vector<double> drawn_rows(Context& ctx, const Array& values, const RowsDraw& c) {
  const TestTensor logits(ctx, values, DType::f32, c.layout);
  const TestTensor rows(ctx, as_array(c.rows), DType::i32, c.layout);
  const WordTensor<DrawOptions> options(ctx, c.options, c.layout == Layout::contiguous ? 0 : 3);
  const TestTensor ids = TestTensor::poisoned(ctx, {std::ssize(c.rows)}, DType::i32, c.layout);
  sample_rows(ctx, {.logits = logits, .rows = rows, .options = options, .ids = ids});
  EXPECT_TRUE(ids.surroundings_intact());
  EXPECT_TRUE(logits.untouched());
  return ids.read().data;
}

// One draw alone, by sample().
double drawn_alone(Context& ctx, const Array& values, std::int64_t row, const DrawOptions& o) {
  const TestTensor logits(ctx, values, DType::f32);
  const TestTensor ids = TestTensor::poisoned(ctx, {1}, DType::i32);
  sample(ctx, {.logits = logits.view().select(0, row),
               .temperature = o.temperature,
               .top_k = o.top_k,
               .top_p = o.top_p,
               .min_p = o.min_p,
               .seed = o.seed,
               .draw = o.draw,
               .ids = ids});
  return ids.read().data[0];
}

// Draw i is from row i * 5 % rows, so that draws share rows and take them in any order.
RowsDraw all_kinds(std::int64_t rows, Layout layout = Layout::contiguous) {
  RowsDraw c{.rows = {}, .options = draw_kinds(), .layout = layout};
  for (std::int64_t i = 0; i < std::ssize(c.options); ++i) {
    c.rows.push_back(static_cast<std::int32_t>(i * 5 % rows));
  }
  return c;
}

void check_against_twin(Context& ctx, const Array& values, const RowsDraw& c) {
  const std::vector<double> ids = drawn_rows(ctx, values, c);
  const Array logits = TestTensor(ctx, values, DType::f32).read();
  for (std::size_t d = 0; d < ids.size(); ++d) {
    const DrawOptions& o = c.options[d];
    const double* row = logits.row(c.rows[d]);
    const std::vector<double> p = reference::distribution(
        {row, row + values.size(-1)}, {o.temperature, o.top_k, o.top_p, o.min_p});
    EXPECT_EQ(ids[d], reference::drawn_token(p, o.seed, o.draw)) << "draw " << d;
  }
}

class SampleRowsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SampleRowsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(SampleRowsTest, OddSizesAndEveryKindOfDraw) {
  for (const std::int64_t n : {1, 2, 63, 65, 2047, 2049, 4099}) {
    SCOPED_TRACE(n);
    check_against_twin(ctx(), random_normal({3, n}, 1, 3.0), all_kinds(3));
  }
}

TEST_P(SampleRowsTest, Layouts) {
  for (const Layout layout : kLayouts) {
    check_against_twin(ctx(), random_normal({4, 533}, 2, 3.0), all_kinds(4, layout));
  }
}

// The token is that of sample(), in any company.
TEST_P(SampleRowsTest, EachDrawIsThatOfSample) {
  const Array values = random_normal({3, 2500}, 7, 2.0);
  const RowsDraw c = all_kinds(3);
  const std::vector<double> ids = drawn_rows(ctx(), values, c);
  for (std::size_t d = 0; d < ids.size(); ++d) {
    EXPECT_EQ(ids[d], drawn_alone(ctx(), values, c.rows[d], c.options[d])) << "draw " << d;
    EXPECT_EQ(ids[d], drawn_rows(ctx(), values, {{c.rows[d]}, {c.options[d]}})[0]) << "draw " << d;
  }
}

// More equal logits than a GPU sorts at once (4096), and more than it lists (8192).
TEST_P(SampleRowsTest, TiesGoToTheLowerIds) {
  for (const std::int64_t n : {700, 9001}) {
    const std::vector<DrawOptions> options = {
        {}, {.top_k = 5}, {.top_k = 6000}, {.top_p = 0.7}, {.temperature = 0}, {.top_p = 1e-4}};
    check_against_twin(ctx(), Array({1, n}, 1.5), {{0, 0, 0, 0, 0, 0}, options});
  }
}

TEST_P(SampleRowsTest, DrawsWithoutATokenGiveMinusOne) {
  Array values = random_normal({5, 2100}, 3, 3.0);
  const RowsDraw fine_rows{std::vector<std::int32_t>(draw_kinds().size(), 4), draw_kinds()};
  const std::vector<double> fine = drawn_rows(ctx(), values, fine_rows);
  values.at(0, 2099) = NAN;
  values.at(1, 0) = kInf;
  for (std::int64_t i = 0; i < 2100; ++i) values.at(2, i) = -kInf;
  for (const std::int32_t row : {0, 1, 2, -1, 5, INT32_MAX, INT32_MIN}) {
    SCOPED_TRACE(row);
    RowsDraw c = fine_rows;
    for (std::size_t d = 0; d < c.rows.size(); d += 2) c.rows[d] = row;
    const std::vector<double> ids = drawn_rows(ctx(), values, c);
    for (std::size_t d = 0; d < ids.size(); ++d) EXPECT_EQ(ids[d], d % 2 == 0 ? -1 : fine[d]);
  }
}

TEST_P(SampleRowsTest, OptionsOutOfRangeGiveMinusOne) {
  const std::vector<DrawOptions> options = {
      {.temperature = -1}, {.temperature = NAN}, {.temperature = kInf}, {.top_p = 0},
      {.top_p = 1.5},      {.top_p = NAN},       {.min_p = -0.5},       {.min_p = NAN},
      {.min_p = 1.25},     {.top_k = -1},        {.temperature = 0}};
  const std::vector<double> ids =
      drawn_rows(ctx(), Array({1, 9}, 2.0), {std::vector<std::int32_t>(options.size()), options});
  for (std::size_t d = 0; d < ids.size(); ++d) EXPECT_EQ(ids[d], d + 1 < ids.size() ? -1 : 0);
}

TEST_P(SampleRowsTest, ScratchIsCounted) {
  const TestTensor logits(ctx(), random_normal({3, 5000}, 1), DType::f32);
  const RowsDraw c = all_kinds(3);
  const TestTensor rows(ctx(), as_array(c.rows), DType::i32);
  const WordTensor<DrawOptions> options(ctx(), c.options);
  const TestTensor ids = TestTensor::poisoned(ctx(), {std::ssize(c.rows)}, DType::i32);
  const SampleRowsArgs args{.logits = logits, .rows = rows, .options = options, .ids = ids};
  std::int64_t counted = 0;
  {
    const Workspace::Count count(ctx().workspace());
    sample_rows(ctx(), args);
    counted = count.peak_bytes();
  }
  EXPECT_TRUE(ids.untouched());
  ctx().workspace().reset_peak();
  sample_rows(ctx(), args);
  EXPECT_EQ(ctx().workspace_peak_bytes(), GetParam().is_cpu() ? 0 : counted);
}

TEST_P(SampleRowsTest, NoDrawsAreNoWork) {
  EXPECT_TRUE(drawn_rows(ctx(), random_normal({2, 5}, 1), {}).empty());
  EXPECT_TRUE(drawn_rows(ctx(), Array({0, 5}), {}).empty());
}

TEST_P(SampleRowsTest, IsTraced) {
  drawn_rows(ctx(), random_normal({2, 8}, 1), {{1, 0, 1}, {{}, {}, {}}});
  EXPECT_EQ(ctx().trace().calls("sample_rows", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  EXPECT_EQ(ctx().trace().entries().front().shapes, "logits f32[2, 8] ids i32[3]");
}

TEST_P(SampleRowsTest, RefusesBeforeWriting) {
  const std::vector<Refusal<SampleRowsArgs>> refusals = {
      {[](SampleRowsArgs& a) { a.logits = {}; }, "sample_rows: logits was not given"},
      {[](SampleRowsArgs& a) { a.logits.dtype = DType::f16; },
       "sample_rows: logits is f16; accepted: f32"},
      {[](SampleRowsArgs& a) { a.rows = {}; }, "sample_rows: rows was not given"},
      {[](SampleRowsArgs& a) { a.rows.dtype = DType::f32; },
       "sample_rows: rows is f32; accepted: i32"},
      {[](SampleRowsArgs& a) { a.options.dtype = DType::f32; },
       "sample_rows: options is f32; accepted: i64"},
      {[](SampleRowsArgs& a) { a.options.shape[1] = 5; },
       "sample_rows: options must have shape [2, 6], got i64[2, 5] with strides [6, 1]"},
      {[](SampleRowsArgs& a) { a.ids.shape[0] = 1; },
       "sample_rows: ids must have shape [2], got i32[1]"},
      {[](SampleRowsArgs& a) { a.logits.shape[1] = 0; },
       "sample_rows: logits f32[3, 0] is empty: no token is possible"},
      {[](SampleRowsArgs& a) { a.ids.data = a.logits.data; },
       "sample_rows: ids overlaps the memory of logits"},
  };
  for (const Refusal<SampleRowsArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const TestTensor logits(ctx(), random_normal({3, 5}, 1), DType::f32);
    const TestTensor rows(ctx(), as_array({0, 1}), DType::i32);
    const WordTensor<DrawOptions> options(ctx(), {{}, {}});
    const TestTensor ids = TestTensor::poisoned(ctx(), {2}, DType::i32);
    SampleRowsArgs args{.logits = logits, .rows = rows, .options = options, .ids = ids};
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { sample_rows(ctx(), args); }, refusal.text, refusal.code));
    EXPECT_TRUE(ids.untouched());
  }
}

}  // namespace
}  // namespace tessera::test
