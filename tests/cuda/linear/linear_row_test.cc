// linear() of one token with packed weights, by cuda.stream and by its kernel for one token.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "cuda/linear/portable/stream.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "support/sanitizers.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaRowTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaRowTest, testing::Values(Device::cuda()), device_name);

// So long that a warp's weights go round its ring in shared memory, more than once.
TEST_P(CudaRowTest, OneLongRow) {
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      check_linear(ctx(), {.rows = {1}, .in = 18777, .out = 3, .weight = weight, .x_dtype = dtype});
    }
  }
  EXPECT_EQ(ctx().trace().calls("linear"), ctx().trace().calls("linear", "cuda.stream"));
}

// One token of bf16, which the kernel may or may not be able to scale.
TEST_P(CudaRowTest, OneRowOfAnySize) {
  for (const WeightCase& weight : tiled_weights()) {
    for (double scale : {0x1p-60, 0x1p24, 0x1p26, 0x1p27, 0x1p110}) {
      for (std::int64_t in : {64, 333}) {
        check_linear(
            ctx(),
            {.rows = {1}, .in = in, .weight = weight, .x_dtype = DType::bf16, .x_scale = scale});
      }
    }
    for (DType dtype : {DType::f16, DType::bf16}) {
      // An infinity leaves no finite number.
      LinearCall call(ctx(), {.rows = {1},
                              .weight = weight,
                              .x_dtype = dtype,
                              .x_scale = std::numeric_limits<double>::infinity()});
      linear(ctx(), call.args);
      for (double value : call.out.read().data) EXPECT_FALSE(std::isfinite(value));
    }
  }
}

// Runs a call by the kernel for one token; false: there is none for it.
template <typename Args>
bool stream_row(Context& ctx, const Args& args) {
  const cuda::Product product = cuda::product_of(args);
  const cuda::LinearCall call{ctx, product, 1};
  if (!cuda::takes_stream(call)) return false;
  cuda::StreamPlan plan = cuda::plan_stream(call);
  if (!cuda::has_one_token(call, plan)) return false;
  plan.one_token = true;
  cuda::run_stream(call, plan);
  return true;
}

// The kernel for one token itself, which cuda.stream takes for some weights only: all that the
// tests of one token above and below have.
TEST_P(CudaRowTest, OneRowByItsOwnKernel) {
  Thinned thinned(3);
  std::set<Format> formats;
  const auto check = [&](const LinearCase& c) {
    if (!thinned.takes_next()) return;
    LinearCall call(ctx(), c);
    if (!stream_row(ctx(), call.args)) return;
    SCOPED_TRACE(c.text());
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    stream_row(ctx(), call.args);
    EXPECT_TRUE(identical(call.out.read(), first));
    formats.insert(c.weight.packed->format);
  };
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t in : {1, 63, 129, 3000}) {
        check({.rows = {1},
               .in = in,
               .out = 81,
               .weight = weight,
               .x_dtype = dtype,
               .activation = Activation::gelu,
               .bias = DType::f32,
               .residual = true});
      }
      check({.rows = {1}, .in = 1000, .weight = weight, .x_dtype = dtype, .x_sign = 1});
      check({.rows = {1}, .in = 192, .weight = weight, .x_dtype = dtype, .layout = Layout::sliced});
    }
    // 2^47 is the border from which on x is not multiplied with another size.
    for (double scale : {0x1p-60, 0x1p45, 0x1p46, 0x1p47, 0x1p110}) {
      check({.rows = {1}, .in = 333, .weight = weight, .x_dtype = DType::bf16, .x_scale = scale});
    }
  }
  EXPECT_EQ(formats, (std::set<Format>{Format::nvfp4, Format::mxfp4, Format::int4}));
}

TEST_P(CudaRowTest, OneRowOfAGatedPairByItsOwnKernel) {
  int calls = 0;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      GatedCall call(
          ctx(), {.rows = 1, .in = 333, .out = 81, .gate = weight, .up = weight, .dtype = dtype});
      if (!stream_row(ctx(), call.args)) continue;
      SCOPED_TRACE(weight.text());
      EXPECT_TRUE(call.correct());
      ++calls;
    }
  }
  EXPECT_GE(calls, 3 * 2);  // formats
}

// Sums of integers' codes are large where activations have one sign; what is left of them after the
// zero points is small.
TEST_P(CudaRowTest, OneRowOfOneSign) {
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      check_linear(ctx(),
                   {.rows = {1}, .in = 1000, .weight = weight, .x_dtype = dtype, .x_sign = 1});
    }
  }
}

}  // namespace
}  // namespace tessera::test
