#include "tessera/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/softmax.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

struct SoftmaxCase {
  std::vector<std::int64_t> shape = {2, 3, 113};
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;
  Layout layout = Layout::contiguous;
  float scale = 1.f;

  std::string text() const {
    return testing::PrintToString(shape) + " " + std::string(name(dtype)) + " to " +
           std::string(name(out_dtype)) + " " + to_string(layout) + " scale " +
           std::to_string(scale);
  }
};

struct SoftmaxCall {
  TestTensor x, out;
  SoftmaxArgs args;

  SoftmaxCall(Context& ctx, const SoftmaxCase& c)
      : SoftmaxCall(ctx, c, random_normal(c.shape, 1, 2.0)) {}
  SoftmaxCall(Context& ctx, const SoftmaxCase& c, const Array& values)
      : x(ctx, values, c.dtype, c.layout),
        out(TestTensor::poisoned(ctx, c.shape, c.out_dtype, c.layout)),
        args{x, c.scale, out} {}
};

// Exponents reach -40. In f32 their error is 40 * 2^-23, which is also the relative error of their
// exponentials. The sum and its inverse add a few units. Then comes one rounding to the dtype (f16
// has subnormals).
testing::AssertionResult softmax_accurate(const Array& actual, const Array& expected, DType dtype) {
  const double rounding = dtype == DType::f32 ? 0.0 : 0.51 * epsilon(dtype);
  const double subnormal = dtype == DType::f16 ? 0x1p-25 : 0x1p-126;
  return close(actual, expected, rounding + 48 * 0x1p-23, subnormal);
}

void check_softmax(Context& ctx, const SoftmaxCase& c) {
  SCOPED_TRACE(c.text());
  SoftmaxCall call(ctx, c);
  softmax(ctx, call.args);
  const Array expected = reference::softmax(call.x.read(), c.scale);
  EXPECT_TRUE(softmax_accurate(call.out.read(), expected, c.out_dtype));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.x.untouched());

  SoftmaxCall again(ctx, c);
  softmax(ctx, again.args);
  EXPECT_TRUE(identical(again.out.read(), call.out.read()));
  if (c.dtype == c.out_dtype) {  // in place
    again.args.out = again.x;
    softmax(ctx, again.args);
    EXPECT_TRUE(identical(again.x.read(), call.out.read()));
    EXPECT_TRUE(again.x.surroundings_intact());
  }
}

class SoftmaxTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SoftmaxTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(SoftmaxTest, OddSizes) {
  for (std::int64_t n : {1, 2, 3, 7, 16, 31, 113, 239, 1023, 4099})
    check_softmax(ctx(), {.shape = {3, n}});
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{5}, {1, 5}, {4, 3, 2, 5}, {2, 1, 2, 1, 3, 5}}) {
    check_softmax(ctx(), {.shape = shape, .layout = Layout::permuted});
  }
}

TEST_P(SoftmaxTest, DtypesLayoutsAndScales) {
  for (DType dtype : kFloats) {
    for (DType out_dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (float scale : {0.125f, 1.f, 2.5f}) {
          check_softmax(ctx(),
                        {.dtype = dtype, .out_dtype = out_dtype, .layout = layout, .scale = scale});
        }
      }
    }
  }
}

TEST_P(SoftmaxTest, RowsSumToOne) {
  SoftmaxCall call(ctx(), {.shape = {5, 1023}});
  softmax(ctx(), call.args);
  const Array out = call.out.read();
  for (std::int64_t r = 0; r < 5; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < 1023; ++i) sum += out.at(r, i);
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST_P(SoftmaxTest, LargeElementsDoNotOverflow) {
  Array values({1, 4});
  values.data = {-3e38, 3e38, 3e38, 0};
  SoftmaxCall call(ctx(), {.shape = {1, 4}, .scale = 10.f}, values);
  softmax(ctx(), call.args);
  EXPECT_EQ(call.out.read().data, (std::vector<double>{0, 0.5, 0.5, 0}));
}

// Every special element in every place of a row longer than a vector.
TEST_P(SoftmaxTest, SpecialElements) {
  constexpr std::int64_t kN = 39;
  for (DType dtype : kFloats) {
    for (double special : {-HUGE_VAL, HUGE_VAL, std::nan("")}) {
      Array values = random_normal({kN, kN}, 4);
      for (std::int64_t i = 0; i < kN; ++i) values.at(i, i) = special;
      SoftmaxCall call(ctx(), {.shape = {kN, kN}, .dtype = dtype}, values);
      softmax(ctx(), call.args);
      const Array out = call.out.read();
      if (special == -INFINITY) {
        EXPECT_TRUE(softmax_accurate(out, reference::softmax(call.x.read(), 1.0), DType::f32));
        for (std::int64_t i = 0; i < kN; ++i) EXPECT_EQ(out.at(i, i), 0.0);
      } else {
        EXPECT_TRUE(identical(out, Array({kN, kN}, NAN)));
      }
    }
  }
}

TEST_P(SoftmaxTest, MaskedRows) {
  constexpr std::int64_t kN = 21;
  Array values = random_normal({3, kN}, 4);
  for (std::int64_t i = 0; i < kN; ++i) values.at(0, i) = values.at(1, i) = -INFINITY;
  values.at(1, 19) = NAN;
  SoftmaxCall call(ctx(), {.shape = {3, kN}}, values);
  softmax(ctx(), call.args);
  const Array out = call.out.read();
  for (std::int64_t i = 0; i < kN; ++i) {
    EXPECT_EQ(out.at(0, i), 0.0);           // nothing but -inf: zeros
    EXPECT_TRUE(std::isnan(out.at(1, i)));  // but a NaN shows
    EXPECT_GT(out.at(2, i), 0.0);
  }
}

TEST_P(SoftmaxTest, SameBitsForAnyThreadCount) {
  const SoftmaxCase c{.shape = {61, 799}, .out_dtype = DType::bf16};
  const auto one = context(1), three = context(3);
  SoftmaxCall a(*one, c), b(*three, c);
  softmax(*one, a.args);
  softmax(*three, b.args);
  EXPECT_TRUE(identical(a.out.read(), b.out.read()));
}

TEST_P(SoftmaxTest, EmptyTensorsAreNoWork) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{0}, {0, 5}, {3, 0}}) {
    SoftmaxCall call(ctx(), {.shape = shape});
    softmax(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
  }
}

TEST_P(SoftmaxTest, IsTraced) {
  SoftmaxCall call(ctx(), {.shape = {2, 8}, .out_dtype = DType::f16});
  softmax(ctx(), call.args);
  ASSERT_EQ(ctx().trace().calls("softmax", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "x f32[2, 8]");
  EXPECT_EQ(entry.bytes, 16 * 4 + 16 * 2);
  EXPECT_EQ(entry.flops, 6 * 16);
}

TEST_P(SoftmaxTest, RefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  const std::vector<Refusal<SoftmaxArgs>> refusals = {
      {[](SoftmaxArgs& a) { a.x = {}; }, "softmax: x was not given"},
      {[](SoftmaxArgs& a) { a.x.device = Device::cuda(7); },
       "softmax: x is on cuda:7, but the context runs on " + here},
      {[](SoftmaxArgs& a) { a.x.dtype = DType::i32; },
       "softmax: x is i32; accepted: f32, f16, bf16"},
      {[](SoftmaxArgs& a) { a.x.data = nullptr; },
       "softmax: x f32[3, 5] has no data (null pointer)"},
      {[](SoftmaxArgs& a) { a.x.data = a.x.ptr<char>() + 3; },
       "softmax: x f32[3, 5] is not aligned to its 4-byte elements"},
      {[](SoftmaxArgs& a) { a.x.strides[0] = std::numeric_limits<std::int64_t>::max(); },
       "size 2 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
      {[](SoftmaxArgs& a) { a.scale = 0.f; },
       "softmax: scale is 0; it must be positive and finite"},
      {[](SoftmaxArgs& a) { a.scale = -1.f; },
       "softmax: scale is -1; it must be positive and finite"},
      {[](SoftmaxArgs& a) { a.scale = INFINITY; },
       "softmax: scale is inf; it must be positive and finite"},
      {[](SoftmaxArgs& a) { a.out = {}; }, "softmax: out was not given"},
      {[](SoftmaxArgs& a) { a.out.dtype = DType::f8e4m3; },
       "softmax: out is f8e4m3; accepted: f32, f16, bf16"},
      {[](SoftmaxArgs& a) { a.out = a.out.view({15}); },
       "softmax: out must have the shape of x, f32[3, 5], got f32[15]"},
      {[](SoftmaxArgs& a) { a.out.strides[0] = 4; },
       "softmax: out reaches an element more than once: f32[3, 5] with strides [4, 1]"},
      {[](SoftmaxArgs& a) { a.out.data = a.x.ptr<float>() + 1; },
       "softmax: out overlaps the memory of x"},
      {[](SoftmaxArgs& a) { a.out = a.x, a.out.dtype = DType::f16; },
       "softmax: out overlaps the memory of x"},
  };
  for (const Refusal<SoftmaxArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    SoftmaxCall call(ctx(), {.shape = {3, 5}});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { softmax(ctx(), call.args); }, refusal.text, refusal.code));
    EXPECT_TRUE(call.x.untouched());
    EXPECT_TRUE(call.out.untouched());
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST(SoftmaxSimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (DType dtype : kFloats) {
      for (std::int64_t n : {1, 3, 16, 113, 239}) {
        check_softmax(
            ctx, {.shape = {3, n}, .dtype = dtype, .out_dtype = dtype, .layout = Layout::sliced});
      }
      Array values = random_normal({1, 21}, 4);
      values.at(0, 20) = NAN;
      SoftmaxCall call(ctx, {.shape = {1, 21}, .dtype = dtype}, values);
      softmax(ctx, call.args);
      EXPECT_TRUE(identical(call.out.read(), Array({1, 21}, NAN)));
    }
  });
}

}  // namespace
}  // namespace tessera::test
