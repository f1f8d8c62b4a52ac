// gated_linear() of many tokens on Hopper: two products in f32, and a pass over both.
#include <gtest/gtest.h>

#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaGatedTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaGatedTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaGatedTest, ManyRowsAreCorrectAndTheSameTwice) {
  const WeightCase nvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true};
  const WeightCase int4{.packed = {{.format = Format::int4, .group = 128}}, .prepared = true};
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (Layout layout : {Layout::contiguous, Layout::sliced}) {
      for (std::int64_t rows : {17, 70, 130}) {
        GatedCall call(ctx(), {.rows = rows,
                               .in = 1024,
                               .out = rows == 70 ? 1000 : 37,
                               .gate = nvfp4,
                               .up = rows == 130 ? int4 : nvfp4,
                               .dtype = dtype,
                               .layout = layout,
                               .activation = rows == 17 ? Activation::gelu : Activation::silu});
        ctx().trace().clear();
        gated_linear(ctx(), call.args);
        EXPECT_TRUE(call.correct()) << rows;
        const Array first = call.out.read();
        gated_linear(ctx(), call.args);
        EXPECT_TRUE(identical(call.out.read(), first));
        EXPECT_EQ(ctx().trace().calls("gated_linear", rows > 80 ? "cuda.cublaslt" : "cuda.panels"),
                  2);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
