// cuda.mma itself, whatever linear() would choose: all formats, and all ways to share a product.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>

#include "cuda/linear/kernels.h"
#include "cuda/linear/portable/mma.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

constexpr DType kHalves[] = {DType::f16, DType::bf16};

class CudaMmaTest : public DeviceTest {
 protected:
  // A plan with these tokens, sharers and blocks. Without it, the kernel makes its own plan.
  struct How {
    int tokens, sharers_log2, blocks;
  };
  template <typename Args>
  void multiply(const Args& args, std::optional<How> how = {}) {
    const cuda::Product product = cuda::product_of(args);
    const cuda::LinearCall call{ctx(), product, cuda::tokens_of(args.x)};
    ASSERT_TRUE(cuda::takes_mma(call));
    const cuda::MmaWork work = cuda::mma_work(call);
    const cuda::MmaPlan plan =
        how ? cuda::mma_plan_of(work, how->tokens, how->sharers_log2, how->blocks)
            : cuda::plan_mma(work);
    cuda::linear_kernel(cuda::KernelId::mma).run(call, cuda::mma_launch_of(work, plan));
  }
  template <typename Args>
  bool takes(const Args& args) {
    const cuda::Product product = cuda::product_of(args);
    return cuda::takes_mma({ctx(), product, cuda::tokens_of(args.x)});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaMmaTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaMmaTest, EveryFormat) {
  std::set<Format> formats;
  for (const WeightCase& weight : tiled_weights()) {
    for (const DType dtype : kHalves) {
      for (const int tokens : {32, 64, 128}) {
        SCOPED_TRACE(testing::Message() << weight.text() << ", " << tokens);
        LinearCall call(ctx(), {.rows = {tokens == 64 ? 21 : 9},
                                .in = tokens == 32 ? 200 : 333,
                                .out = 37,
                                .weight = weight,
                                .x_dtype = dtype});
        multiply(call.args, How{.tokens = tokens, .sharers_log2 = 0, .blocks = 1});
        EXPECT_TRUE(call.correct());
        formats.insert(weight.packed->format);
      }
    }
  }
  EXPECT_EQ(formats.size(), 6U);
}

TEST_P(CudaMmaTest, GatedPairsOfEveryFormat) {
  for (const WeightCase& weight : tiled_weights()) {
    const DType dtype = weight.packed->format == Format::int4 ? DType::f16 : DType::bf16;
    SCOPED_TRACE(weight.text());
    GatedCall call(
        ctx(), {.rows = 18, .in = 140, .out = 39, .gate = weight, .up = weight, .dtype = dtype});
    multiply(call.args);
    EXPECT_TRUE(call.correct());
  }
}

const WeightCase kNvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true};

// Tokens that begin anywhere, depths and features that fill no vector, tile or block.
TEST_P(CudaMmaTest, LayoutsSizesAndEpilogues) {
  for (const DType dtype : kHalves) {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t out : {264, 259}) {
        LinearCall call(ctx(), {.rows = {layout == Layout::contiguous ? 70 : 19},
                                .in = 136,
                                .out = out,
                                .weight = kNvfp4,
                                .x_dtype = dtype,
                                .out_dtype = layout == Layout::contiguous ? dtype : DType::f32,
                                .layout = layout,
                                .activation = Activation::gelu,
                                .bias = out == 264 ? dtype : DType::f32,
                                .residual = true});
        if (!takes(call.args)) continue;  // no matrix
        SCOPED_TRACE(call.c.text());
        multiply(call.args);
        EXPECT_TRUE(call.correct());
      }
    }
  }
}

// All ways in which warps and blocks share a product: parts are added up in the same order each
// time.
TEST_P(CudaMmaTest, WarpsAndBlocksShareTiles) {
  for (const std::int64_t rows : {17, 65}) {
    LinearCall call(ctx(), {.rows = {rows},
                            .in = 300,  // 3 pairs
                            .out = 270,
                            .weight = kNvfp4,
                            .x_dtype = DType::bf16,
                            .out_dtype = DType::bf16,
                            .activation = Activation::silu,
                            .residual = true});
    GatedCall gated(ctx(), {.rows = rows,
                            .in = 520,  // 5 pairs
                            .out = 70,
                            .gate = kNvfp4,
                            .up = kNvfp4,
                            .dtype = DType::f16,
                            .activation = Activation::gelu_tanh});
    // 1 to 9 tiles: whole ones, several to a block, several blocks to one, and both.
    const How plans[] = {{32, 0, 1}, {32, 0, 2}, {32, 0, 4},  {32, 1, 100}, {64, 0, 3},
                         {64, 1, 3}, {64, 1, 5}, {128, 0, 3}, {128, 1, 2}};
    for (const How& how : plans) {
      SCOPED_TRACE(testing::Message()
                   << rows << ": " << how.tokens << ", " << how.sharers_log2 << ", " << how.blocks);
      const auto check = [&](auto& one) {
        multiply(one.args, how);
        EXPECT_TRUE(one.correct());
        const Array first = one.out.read();
        multiply(one.args, how);
        EXPECT_TRUE(identical(one.out.read(), first));
      };
      check(call);
      check(gated);
    }
  }
}

// NaN in one token does not reach others, and what lies behind a row is not read as part of it.
TEST_P(CudaMmaTest, RowsAreApart) {
  const LinearCase c{.rows = {40}, .in = 200, .out = 48, .weight = kNvfp4, .x_dtype = DType::f16};
  LinearCall alone(ctx(), c), beside(ctx(), c);
  multiply(alone.args);
  Array x = beside.x.read();
  for (std::int64_t k = 0; k < 200; ++k) x.at(7, k) = std::nan("");
  const TestTensor with_nan(ctx(), x, DType::f16);
  beside.args.x = with_nan;
  multiply(beside.args);
  const Array expected = alone.out.read(), found = beside.out.read();
  for (std::int64_t m = 0; m < 40; ++m) {
    for (std::int64_t n = 0; n < 48; ++n) {
      if (m == 7) {
        EXPECT_TRUE(std::isnan(found.at(m, n)));
      } else {
        EXPECT_EQ(found.at(m, n), expected.at(m, n));
      }
    }
  }
}

TEST_P(CudaMmaTest, WhatItTakes) {
  const auto takes_case = [&](const LinearCase& c) {
    const LinearCall call(ctx(), c);
    return takes(call.args);
  };
  EXPECT_TRUE(takes_case({.weight = kNvfp4, .x_dtype = DType::f16}));
  EXPECT_FALSE(takes_case({.weight = kNvfp4, .x_dtype = DType::f32}));
  EXPECT_FALSE(takes_case({.weight = {.dtype = DType::f16}, .x_dtype = DType::f16}));
  EXPECT_FALSE(
      takes_case({.weight = {.packed = {{.format = Format::nvfp4}}}, .x_dtype = DType::f16}));
  const WeightCase int4{.packed = {{.format = Format::int4}}, .prepared = true};
  const GatedCall differ(ctx(), {.gate = kNvfp4, .up = int4, .dtype = DType::f16});
  EXPECT_FALSE(takes(differ.args));
}

}  // namespace
}  // namespace tessera::test
