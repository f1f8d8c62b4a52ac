// cuda.strips itself, whatever linear() would choose: all formats, and all ways to share a product.
#include <gtest/gtest.h>

#include <set>

#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/plan/strip_plan.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaStripsTest : public HopperTest {
 protected:
  bool takes(const LinearCall& call) {
    const cuda::Product product = cuda::product_of(call.args);
    return cuda::takes_strips({ctx(), product, call.args.x.shape[0]});
  }
  cuda::StripPlan multiply(const LinearCall& call) {
    const cuda::Product product = cuda::product_of(call.args);
    const cuda::LinearCall strips{ctx(), product, call.args.x.shape[0]};
    const cuda::StripPlan plan = cuda::plan_strips(strips);
    cuda::run_strips(strips, plan);
    return plan;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaStripsTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaStripsTest, EveryFormat) {
  std::set<Format> formats;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {1, 8, 9, 16, 33}) {
        LinearCall call(ctx(), {.rows = {rows},
                                .in = rows % 2 == 0 ? 320 : 64,
                                .out = 37,
                                .weight = weight,
                                .x_dtype = dtype});
        if (!takes(call)) continue;
        SCOPED_TRACE(weight.text());
        multiply(call);
        EXPECT_TRUE(call.correct());
        formats.insert(weight.packed->format);
      }
    }
  }
  EXPECT_GE(formats.size(), 6U);
}

TEST_P(CudaStripsTest, LayoutsAndEpilogues) {
  const WeightCase weight{.packed = {{.format = Format::nvfp4}}, .prepared = true};
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (std::int64_t rows : {3, 13, 16, 45}) {
      LinearCall call(ctx(), {.rows = {rows},
                              .in = 1344,
                              .out = 1003,
                              .weight = weight,
                              .x_dtype = dtype,
                              .out_dtype = dtype,
                              .activation = Activation::gelu,
                              .bias = DType::f32,
                              .residual = true});
      ASSERT_TRUE(takes(call));
      multiply(call);
      EXPECT_TRUE(call.correct());
    }
  }
}

// Other kernels take what the copy engine cannot bring.
TEST_P(CudaStripsTest, TakesWholeSlabsOfUpTo128Rows) {
  const WeightCase weight{.packed = {{.format = Format::nvfp4}}, .prepared = true};
  const struct {
    std::int64_t rows, in;
    DType dtype;
    bool taken;
  } cases[] = {{16, 128, DType::f16, true},   {16, 8192, DType::f16, true},  // few strips
               {1, 64, DType::bf16, true},    {128, 64, DType::bf16, true},
               {129, 64, DType::bf16, false}, {16, 72, DType::f16, false},
               {16, 128, DType::f32, false}};
  for (const auto& one : cases) {
    const LinearCall call(
        ctx(), {.rows = {one.rows}, .in = one.in, .weight = weight, .x_dtype = one.dtype});
    EXPECT_EQ(takes(call), one.taken) << one.rows << " rows of " << one.in;
  }
}

// All ways in which blocks and warps share strips (strip_plan.h): sums are added up in the same
// order each time.
TEST_P(CudaStripsTest, BlocksShareStrips) {
  const struct {
    std::int64_t rows, in, out;
  } sizes[] = {
      {16, 8192, 4000},                     // warps of many shares
      {9, 2560, 10240},  {16, 128, 40000},  // higher strips, of one pair
      {16, 192, 130000},                    // strip after strip, whose pairs are not shared evenly
      {5, 4096, 1000},   {32, 768, 3072},   // groups of rows
      {128, 512, 10000},                    // several of them to a block
  };
  bool several_strips = false, several_shares = false, several_groups = false;
  for (const auto& size : sizes) {
    SCOPED_TRACE(size.out);
    LinearCall call(ctx(), {.rows = {size.rows},
                            .in = size.in,
                            .out = size.out,
                            .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                            .x_dtype = DType::bf16,
                            .out_dtype = DType::bf16});
    ASSERT_TRUE(takes(call));
    const cuda::StripPlan plan = multiply(call);
    several_strips |= plan.groups == 1 && plan.strips > plan.blocks;
    several_groups |= plan.items() > plan.blocks && plan.groups > 1;
    several_shares |= plan.shares > 1;
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    for (int i = 0; i < 3; ++i) {
      multiply(call);
      EXPECT_TRUE(identical(call.out.read(), first));
    }
  }
  EXPECT_TRUE(several_strips);
  EXPECT_TRUE(several_shares);
  EXPECT_TRUE(several_groups);
}

}  // namespace
}  // namespace tessera::test
