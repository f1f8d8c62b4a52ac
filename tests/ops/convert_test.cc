#include "tessera/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/half.h"

namespace tessera::test {
namespace {

// A float64 array rounded to a dtype: the result of a conversion, because its input is exact in
// f32.
Array converted(Array values, DType dtype) {
  for (double& value : values.data) {
    const float f32 = static_cast<float>(value);
    if (dtype == DType::f16) value = to_float(to_f16(f32));
    if (dtype == DType::bf16) value = to_float(to_bf16(f32));
  }
  return values;
}

class ConvertTest : public DeviceTest {
 protected:
  void check(const Array& values, DType from, DType to, Layout x_layout, Layout out_layout) {
    SCOPED_TRACE(testing::PrintToString(values.shape) + " " + std::string(name(from)) + " " +
                 to_string(x_layout) + " to " + std::string(name(to)) + " " +
                 to_string(out_layout));
    const TestTensor x(ctx(), values, from, x_layout);
    const TestTensor out = TestTensor::poisoned(ctx(), values.shape, to, out_layout);
    convert(ctx(), {.x = x, .out = out});
    EXPECT_TRUE(identical(out.read(), converted(x.read(), to)));
    EXPECT_TRUE(out.surroundings_intact());
    EXPECT_TRUE(x.untouched());
  }
};

TEST_P(ConvertTest, EveryPairOfDtypesLayoutsAndOddShapes) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      for (const Layout x_layout : kLayouts) {
        for (const Layout out_layout : kLayouts) {
          check(random_normal({2, 3, 113}, 1, 4.0), from, to, x_layout, out_layout);
        }
      }
      for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
               {1}, {2048}, {4999}, {0, 3}, {7, 1}, {2, 3, 1, 5}}) {
        check(random_normal(shape, 2), from, to, Layout::contiguous, Layout::contiguous);
      }
    }
  }
}

TEST_P(ConvertTest, NumbersOutOfRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  Array values({5});
  values.data = {65504, 65520, -1e30, infinity, std::nan("")};
  const TestTensor x(ctx(), values, DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx(), {5}, DType::f16);
  convert(ctx(), {.x = x, .out = out});
  const Array result = out.read();
  EXPECT_EQ(result.data[0], 65504);
  EXPECT_EQ(result.data[1], infinity);
  EXPECT_EQ(result.data[2], -infinity);
  EXPECT_EQ(result.data[3], infinity);
  EXPECT_TRUE(std::isnan(result.data[4]));
}

TEST_P(ConvertTest, Refusals) {
  const TestTensor x(ctx(), random_normal({2, 4}, 1), DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx(), {2, 4}, DType::f16);
  const TestTensor ids = TestTensor::poisoned(ctx(), {2, 4}, DType::i32);
  const std::vector<Refusal<ConvertArgs>> refusals = {
      {[](ConvertArgs& args) { args.x = {}; }, "convert: x was not given"},
      {[&](ConvertArgs& args) { args.x = ids; }, "convert: x is i32; accepted: f32, f16, bf16"},
      {[](ConvertArgs& args) { args.out = args.out.slice(0, 0, 1); },
       "convert: out must have the shape of x, f32[2, 4], got f16[1, 4]"},
      {[](ConvertArgs& args) { args.out = args.x; }, "convert: out overlaps the memory of x"},
      {[](ConvertArgs& args) { args.out.read_only = true; },
       "convert: out f16[2, 4] is read-only, made from a pointer to const; give writable memory"},
  };
  for (const Refusal<ConvertArgs>& refusal : refusals) {
    ConvertArgs args{.x = x, .out = out};
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { convert(ctx(), args); }, refusal.text, refusal.code));
  }
  EXPECT_TRUE(out.untouched());
}

TEST_P(ConvertTest, TakesConstDataAsAnInput) {
  if (GetParam().is_cuda()) GTEST_SKIP() << "the data is in host memory";
  const std::vector<float> values{1.f, 2.5f, -3.f};
  std::vector<BFloat16> out(3);
  convert(ctx(), {.x = Tensor(values.data(), DType::f32, {3}),
                  .out = Tensor(out.data(), DType::bf16, {3})});
  EXPECT_EQ(to_float(out), values);
}

INSTANTIATE_TEST_SUITE_P(Devices, ConvertTest, testing::ValuesIn(test_devices()), device_name);

}  // namespace
}  // namespace tessera::test
