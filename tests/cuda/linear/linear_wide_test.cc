// cuda.wide itself, whatever linear() would choose: all formats, and all that its tiles can meet.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/linear/hopper/wide.h"
#include "cuda/linear/kernels.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaWideTest : public HopperTest {
 protected:
  using Planner = cuda::WidePlan(const cuda::PanelSizes&);

  // Twice: both are correct and equal in all bits. False: the kernel does not take it.
  bool check(const LinearCase& c, Planner& planner = cuda::plan_wide) {
    SCOPED_TRACE(c.text());
    LinearCall call(ctx(), c);
    // The copy engine does not take x in every layout; outputs may have any.
    const TestTensor x(ctx(), call.x.read(), c.x_dtype);
    call.args.x = x;
    const cuda::Product product = cuda::product_of(call.args);
    const cuda::LinearCall wide{ctx(), product, call.args.x.shape[0]};
    if (!cuda::takes_wide(wide)) return false;
    const cuda::LinearKernel& kernel = cuda::linear_kernel(cuda::KernelId::wide);
    const cuda::WidePlan plan =
        planner({.tiles = product.weight.data.shape[0],
                 .pairs = cuda::pairs_of(product.weight),
                 .m = wide.m,
                 .multiprocessors = cuda::state_of(ctx()).limits().multiprocessors});
    kernel.run(wide, plan);
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    kernel.run(wide, plan);
    EXPECT_TRUE(identical(call.out.read(), first));
    return true;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaWideTest, testing::Values(Device::cuda()), device_name);

const WeightCase kWideNvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true};

TEST_P(CudaWideTest, EveryFormat) {
  int calls = 0;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      if (check({.rows = {70}, .in = 200, .out = 37, .weight = weight, .x_dtype = dtype})) {
        ++calls;
      }
    }
  }
  EXPECT_GE(calls, 2 * 6);  // formats
}

// Around the borders of slabs and pairs of them, of tiles of features and of tokens.
TEST_P(CudaWideTest, BordersOfTiles) {
  for (std::int64_t in : {8, 64, 72, 128, 136, 1032}) {
    EXPECT_TRUE(check({.rows = {9}, .in = in, .weight = kWideNvfp4, .x_dtype = DType::bf16}));
  }
  for (std::int64_t out : {1, 16, 127, 128, 129, 255, 257}) {
    EXPECT_TRUE(
        check({.rows = {9}, .in = 80, .out = out, .weight = kWideNvfp4, .x_dtype = DType::f16}));
  }
  for (std::int64_t rows : {1, 127, 128, 129, 255, 256, 257, 600}) {
    EXPECT_TRUE(
        check({.rows = {rows}, .in = 72, .out = 40, .weight = kWideNvfp4, .x_dtype = DType::bf16}));
  }
}

// Tiles that are dealt out whole, and parts of tiles that are added up.
TEST_P(CudaWideTest, BlocksShareTiles) {
  const struct {
    std::int64_t rows, in, out;
  } sizes[] = {
      {130, 2000, 300},  // few tiles of many pairs
      {260, 520, 1500},  // fewer than blocks
      {20, 136, 17000},  // more than blocks, less than two rounds
      {20, 136, 34000},  // whole ones first
      {513, 72, 700},    // three blocks of tokens
  };
  for (const auto& size : sizes) {
    for (Planner* planner : {static_cast<Planner*>(cuda::plan_wide), &cuda::plan_even_wide}) {
      EXPECT_TRUE(check({.rows = {size.rows},
                         .in = size.in,
                         .out = size.out,
                         .weight = kWideNvfp4,
                         .x_dtype = DType::bf16,
                         .out_dtype = DType::bf16},
                        *planner));
    }
  }
}

// The ways out of a tile: every dtype and layout of the output, with and without what is added.
TEST_P(CudaWideTest, Epilogues) {
  for (Layout layout : kLayouts) {
    for (Activation activation : {Activation::none, Activation::gelu}) {
      for (DType out_dtype : {DType::f32, DType::f16, DType::bf16}) {
        for (std::int64_t out : {49, 50, 56}) {  // singly, in twos, in eights
          EXPECT_TRUE(check(
              {.rows = {70},
               .in = 192,
               .out = out,
               .weight = {.packed = {{.format = Format::int4, .group = 32}}, .prepared = true},
               .x_dtype = DType::f16,
               .out_dtype = out_dtype,
               .layout = layout,
               .activation = activation,
               .bias = DType::bf16,
               .residual = activation == Activation::gelu}));
        }
      }
    }
  }
}

// From 256 tokens on, outputs of whole vectors end by lines: activation and residual meet rounded
// sums. Around the borders of a line, of a warpgroup's features, of a piece of tokens and of tiles.
TEST_P(CudaWideTest, EndsByLines) {
  const struct {
    std::int64_t rows, out;
  } sizes[] = {{256, 8}, {257, 64}, {300, 72}, {319, 136}, {321, 264}, {513, 200}};
  for (const auto& size : sizes) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                    Activation::gelu_tanh, Activation::silu}) {
        for (bool residual : {false, true}) {
          EXPECT_TRUE(check({.rows = {size.rows},
                             .in = 136,
                             .out = size.out,
                             .weight = kWideNvfp4,
                             .x_dtype = dtype,
                             .out_dtype = dtype,
                             .layout = residual ? Layout::spaced : Layout::contiguous,
                             .activation = activation,
                             .bias = DType::f32,
                             .residual = residual}));
        }
      }
    }
  }
}

TEST_P(CudaWideTest, NanStaysInItsRow) {
  LinearCall call(ctx(), {.rows = {130}, .in = 128, .weight = kWideNvfp4, .x_dtype = DType::bf16});
  Array values = call.x.read();
  values.at(100, 57) = std::nan("");
  const TestTensor x(ctx(), values, DType::bf16);
  call.args.x = x;
  const cuda::Product product = cuda::product_of(call.args);
  const cuda::LinearCall wide{ctx(), product, 130};
  const cuda::LinearKernel& kernel = cuda::linear_kernel(cuda::KernelId::wide);
  kernel.run(wide, kernel.plan(wide));
  const Array out = call.out.read();
  for (std::int64_t m = 0; m < 130; ++m) {
    for (std::int64_t n = 0; n < 17; ++n) EXPECT_EQ(std::isnan(out.at(m, n)), m == 100);
  }
}

// Other kernels take what the copy engine cannot bring.
TEST_P(CudaWideTest, TakesNoRowsOffBoundaries) {
  LinearCall call(ctx(), {.rows = {130}, .in = 203, .weight = kWideNvfp4, .x_dtype = DType::bf16});
  const cuda::Product product = cuda::product_of(call.args);
  EXPECT_FALSE(cuda::takes_wide({ctx(), product, 130}));
}

}  // namespace
}  // namespace tessera::test
