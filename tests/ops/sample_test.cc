#include "tessera/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/sample.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct SampleCase {
  std::vector<std::int64_t> shape = {2, 3, 113};
  SampleArgs options{};
  DType dtype = DType::f32;
  DType id_dtype = DType::i32;
  Layout layout = Layout::contiguous;
  double spread = 3.0;

  std::string text() const {
    return testing::PrintToString(shape) + " " + std::string(name(dtype)) + " ids " +
           std::string(name(id_dtype)) + " " + to_string(layout) + " temperature " +
           std::to_string(options.temperature) + " top_k " + std::to_string(options.top_k) +
           " top_p " + std::to_string(options.top_p) + " min_p " + std::to_string(options.min_p);
  }
  std::vector<std::int64_t> id_shape() const {
    if (shape.size() == 1) return {1};
    return {shape.begin(), shape.end() - 1};
  }
};

struct SampleCall {
  TestTensor logits, ids;
  SampleArgs args;

  SampleCall(Context& ctx, const SampleCase& c)
      : SampleCall(ctx, c, random_normal(c.shape, 1, c.spread)) {}
  SampleCall(Context& ctx, const SampleCase& c, const Array& values)
      : logits(ctx, values, c.dtype, c.layout),
        ids(TestTensor::poisoned(ctx, c.id_shape(), c.id_dtype, c.layout)),
        args(c.options) {
    args.logits = logits;
    args.ids = ids;
  }
};

Array drawn(Context& ctx, const SampleCase& c, const Array& values) {
  SampleCall call(ctx, c, values);
  sample(ctx, call.args);
  EXPECT_TRUE(call.ids.surroundings_intact());
  EXPECT_TRUE(call.logits.untouched());
  return call.ids.read();
}

Array expected(Context& ctx, const SampleCase& c, const Array& values) {
  const Array logits = SampleCall(ctx, c, values).logits.read();
  const auto n = static_cast<std::size_t>(c.shape.back());
  Array ids(c.id_shape());
  for (std::size_t row = 0; row < ids.data.size(); ++row) {
    const std::vector<double> of_row(
        logits.data.begin() + static_cast<std::ptrdiff_t>(row * n),
        logits.data.begin() + static_cast<std::ptrdiff_t>(row * n + n));
    const std::vector<double> p = reference::distribution(
        of_row, {c.options.temperature, c.options.top_k, c.options.top_p, c.options.min_p});
    ids.data[row] = reference::drawn_token(p, c.options.seed, c.options.draw + row);
  }
  return ids;
}

void check_sample(Context& ctx, const SampleCase& c, const Array& values) {
  SCOPED_TRACE(c.text());
  EXPECT_TRUE(identical(drawn(ctx, c, values), expected(ctx, c, values)));
}
void check_sample(Context& ctx, const SampleCase& c) {
  check_sample(ctx, c, random_normal(c.shape, 1, c.spread));
}

const std::vector<SampleArgs>& options() {
  static const std::vector<SampleArgs> all = {
      {},
      {.temperature = 0},
      {.temperature = 0.3, .seed = 9},
      {.temperature = 1e-300},
      {.temperature = 40, .draw = 0xffffffffull},
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 1000},
      {.top_k = 1000000},
      {.top_p = 1e-9},
      {.top_p = 0.5},
      {.top_p = 0.9, .seed = 3},
      {.temperature = 8, .top_p = 0.999},
      {.min_p = 0.1},
      {.min_p = 1},
      {.top_k = 40, .top_p = 0.8, .min_p = 0.02},
      {.temperature = 1.7, .top_k = 2000, .top_p = 0.97, .seed = 5, .draw = 77},
  };
  return all;
}

class SampleTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SampleTest, testing::ValuesIn(test_devices()), device_name);

// Sizes around the parts that a GPU cuts rows into, and around the blocks of the CPU.
TEST_P(SampleTest, OddSizesAndEveryOption) {
  for (const std::int64_t n : {1, 2, 63, 65, 2047, 2049, 6151}) {
    for (const SampleArgs& o : options()) check_sample(ctx(), {.shape = {3, n}, .options = o});
  }
}

TEST_P(SampleTest, AVocabulary) {
  for (const SampleArgs& o : {SampleArgs{.top_p = 0.9}, SampleArgs{.temperature = 0.8},
                              SampleArgs{.top_k = 50, .top_p = 0.95, .seed = 4}}) {
    check_sample(ctx(), {.shape = {1, 50304}, .options = o});
  }
}

TEST_P(SampleTest, DtypesAndLayouts) {
  for (const DType dtype : kFloats) {
    for (const Layout layout : kLayouts) {
      for (const DType id_dtype : {DType::i32, DType::i64}) {
        check_sample(ctx(), {.shape = {2, 3, 533},
                             .options = {.top_k = 100, .top_p = 0.9, .seed = 11},
                             .dtype = dtype,
                             .id_dtype = id_dtype,
                             .layout = layout});
      }
    }
  }
  check_sample(ctx(), {.shape = {533}});
}

// More equal logits than a GPU sorts at once (4096), and more than it lists (8192): only the ids
// decide the cut.
TEST_P(SampleTest, TiesGoToTheLowerIds) {
  for (const std::int64_t width : {700, 5003, 9001}) {
    const Array equal({2, width}, 1.5);
    for (const SampleArgs& o :
         {SampleArgs{}, SampleArgs{.top_k = 5}, SampleArgs{.top_k = 6000}, SampleArgs{.top_p = 0.7},
          SampleArgs{.top_p = 1e-4}, SampleArgs{.top_k = 4500, .top_p = 0.5}}) {
      check_sample(ctx(), {.shape = {2, width}, .options = o}, equal);
    }
    // A few values, crowded within one bin of a GPU.
    Array few = random_integers({2, width}, 5, 0, 4);
    for (double& value : few.data) value *= 0x1p-10;
    for (const SampleArgs& o : {SampleArgs{.top_k = 3000}, SampleArgs{.top_p = 0.4, .seed = 2}}) {
      check_sample(ctx(), {.shape = {2, width}, .options = o}, few);
    }
  }
}

TEST_P(SampleTest, ForbiddenTokensAreNeverDrawn) {
  Array logits({4, 700}, -kInfinity);
  for (std::int64_t row = 0; row < 4; ++row) logits.at(row, 699 - row) = -1e30;
  for (const SampleArgs& o : options()) {
    const Array ids = drawn(ctx(), {.shape = {4, 700}, .options = o}, logits);
    for (std::int64_t row = 0; row < 4; ++row) EXPECT_EQ(ids.at(row), 699 - row);
  }
}

TEST_P(SampleTest, RowsWithoutATokenGiveMinusOne) {
  for (const SampleArgs& o : options()) {
    Array logits = random_normal({5, 3000}, 3, 3.0);
    const Array fine = drawn(ctx(), {.shape = {5, 3000}, .options = o}, logits);
    logits.at(1, 2999) = NAN;
    logits.at(2, 0) = kInfinity;
    for (std::int64_t i = 0; i < 3000; ++i) logits.at(3, i) = -kInfinity;
    const Array ids = drawn(ctx(), {.shape = {5, 3000}, .options = o}, logits);
    for (const std::int64_t row : {0, 4}) EXPECT_EQ(ids.at(row), fine.at(row));
    for (const std::int64_t row : {1, 2, 3}) EXPECT_EQ(ids.at(row), -1);
  }
}

// Row r draws like a single row with draw + r, so rows of equal logits differ.
TEST_P(SampleTest, EachRowHasARandomNumberOfItsOwn) {
  Array logits = random_normal({1, 400}, 6, 1.0);
  Array many({16, 400});
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t i = 0; i < 400; ++i) many.at(row, i) = logits.at(0, i);
  }
  const Array ids = drawn(ctx(), {.shape = {16, 400}, .options = {.seed = 8, .draw = 100}}, many);
  bool differ = false;
  for (std::int64_t row = 0; row < 16; ++row) {
    const auto draw = static_cast<std::uint64_t>(100 + row);
    const Array alone =
        drawn(ctx(), {.shape = {1, 400}, .options = {.seed = 8, .draw = draw}}, logits);
    EXPECT_EQ(ids.at(row), alone.at(0));
    differ |= ids.at(row) != ids.at(0);
  }
  EXPECT_TRUE(differ);
}

TEST_P(SampleTest, EmptyTensorsAreNoWork) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{0, 5}, {2, 0, 5}, {0, 0}}) {
    SampleCall call(ctx(), {.shape = shape});
    sample(ctx(), call.args);
    EXPECT_TRUE(call.ids.untouched());
  }
}

TEST_P(SampleTest, IsTraced) {
  SampleCall call(ctx(), {.shape = {2, 8}});
  sample(ctx(), call.args);
  EXPECT_EQ(ctx().trace().calls("sample", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  EXPECT_EQ(ctx().trace().entries().front().shapes, "logits f32[2, 8]");
  EXPECT_EQ(ctx().trace().entries().front().bytes, 2 * 8 * 4 + 2 * 4);
}

TEST_P(SampleTest, RefusesBeforeWriting) {
  const std::vector<Refusal<SampleArgs>> refusals = {
      {[](SampleArgs& a) { a.logits = {}; }, "sample: logits was not given"},
      {[](SampleArgs& a) { a.logits.dtype = DType::i32; },
       "sample: logits is i32; accepted: f32, f16, bf16"},
      {[](SampleArgs& a) { a.ids = {}; }, "sample: ids was not given"},
      {[](SampleArgs& a) { a.ids.dtype = DType::f32; }, "sample: ids is f32; accepted: i32, i64"},
      {[](SampleArgs& a) { a.ids.shape[0] = 2; },
       "sample: ids must have the shape of logits f32[3, 5] without the last dimension, got "
       "i32[2]"},
      {[](SampleArgs& a) { a.logits.shape[1] = 0; },
       "sample: logits f32[3, 0] has rows without elements: no token is "
       "possible"},
      {[](SampleArgs& a) { a.ids.data = a.logits.data; },
       "sample: ids overlaps the memory of logits"},
      {[](SampleArgs& a) { a.temperature = -1; },
       "sample: temperature is -1; it must be 0 (greedy) or a positive number"},
      {[](SampleArgs& a) { a.temperature = NAN; },
       "sample: temperature is nan; it must be 0 (greedy) or a positive number"},
      {[](SampleArgs& a) { a.top_k = -3; },
       "sample: top_k is -3; it must be 0 (all tokens) or more"},
      {[](SampleArgs& a) { a.top_p = 0; }, "sample: top_p is 0; it must be above 0 and at most 1"},
      {[](SampleArgs& a) { a.top_p = 1.5; },
       "sample: top_p is 1.5; it must be above 0 and at most 1"},
      {[](SampleArgs& a) { a.min_p = -0.5; }, "sample: min_p is -0.5; it must be from 0 to 1"},
  };
  for (const Refusal<SampleArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    SampleCall call(ctx(), {.shape = {3, 5}});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { sample(ctx(), call.args); }, refusal.text, refusal.code));
    EXPECT_TRUE(call.ids.untouched());
  }
  const TestTensor wide(ctx(), Array({1, (1 << 20) + 1}, 1.0), DType::bf16);
  SampleCall call(ctx(), {.shape = {1, 5}});
  call.args.logits = wide;
  EXPECT_TRUE(refuses([&] { sample(ctx(), call.args); },
                      "sample: logits has rows of 1048577 elements; at most 1048576 can be sampled "
                      "from"));
  EXPECT_TRUE(ctx().trace().entries().empty());
}

// ---- every SIMD target --------------------------------------------------------------------------

TEST(SampleSimd, EveryTargetDrawsTheSameToken) {
  Context ctx({.threads = 1});
  on_every_simd_target([&] {
    for (const SampleArgs& o : options()) check_sample(ctx, {.shape = {2, 1111}, .options = o});
  });
}

}  // namespace
}  // namespace tessera::test
