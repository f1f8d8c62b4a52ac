// cuda.panels itself, whatever linear() would choose: all formats, and all ways to share tiles.
#include <gtest/gtest.h>

#include <set>

#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/kernels.h"
#include "cuda/linear/plan/panel_plan.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/linear_case.h"
#include "tessera/buffer.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaPanelsTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaPanelsTest, testing::Values(Device::cuda()), device_name);

// False: the kernel does not take it.
bool multiply_by_panels(Context& ctx, const LinearArgs& args) {
  const cuda::Product product = cuda::product_of(args);
  const cuda::LinearCall call{ctx, product, args.x.shape[0]};
  if (!cuda::takes_panels(call)) return false;
  const cuda::LinearKernel& panels = cuda::linear_kernel(cuda::KernelId::panels);
  panels.run(call, panels.plan(call));
  return true;
}

// How many calls this was: none if the kernel does not take it.
int check(Context& ctx, const LinearCase& c) {
  SCOPED_TRACE(c.text());
  const LinearCall call(ctx, c);
  if (!multiply_by_panels(ctx, call.args)) return 0;
  EXPECT_TRUE(call.correct());
  return 1;
}

// Few weights and many tokens: linear() itself would decode these weights once.
TEST_P(CudaPanelsTest, PanelsOfManyTokens) {
  int calls = 0;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t in : {200, 203}) {  // by the copy engine, and not
        calls +=
            check(ctx(), {.rows = {130}, .in = in, .out = 37, .weight = weight, .x_dtype = dtype});
      }
    }
  }
  EXPECT_GE(calls, 2 * 2 * 6);  // formats
}

// Around the borders of slabs and pairs, and fewer tokens than a block takes.
TEST_P(CudaPanelsTest, FewTokensOfAnyLength) {
  int calls = 0;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {1, 13, 30}) {
        for (std::int64_t in : {1, 63, 80, 129, 513}) {
          calls += check(ctx(),
                         {.rows = {rows}, .in = in, .out = 33, .weight = weight, .x_dtype = dtype});
        }
      }
    }
  }
  EXPECT_GE(calls, 6 * 2 * 3 * 5);  // formats
}

// The thread that asks for weights is slower than all others when its code is in no cache. It once
// waited forever for a place that had been used by then.
TEST_P(CudaPanelsTest, WhoAsksComesLast) {
  constexpr std::int64_t kCache = 64 << 20;
  const Buffer from(kCache, ctx().device()), to(kCache, ctx().device());
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      LinearCall call(ctx(),
                      {.rows = {13}, .in = 1, .out = 17, .weight = weight, .x_dtype = dtype});
      if (!multiply_by_panels(ctx(), call.args)) continue;
      SCOPED_TRACE(weight.text());
      for (int i = 0; i < 10; ++i) {
        copy_bytes(ctx(), to.data(), ctx().device(), from.data(), ctx().device(), kCache);
        multiply_by_panels(ctx(), call.args);
        EXPECT_TRUE(call.correct());
      }
    }
  }
}

// All ways in which the blocks of cuda.panels share tiles (panel_plan.h): sums are added up in the
// same order each time.
TEST_P(CudaPanelsTest, BlocksOfPanelsShareTiles) {
  const cuda::DeviceLimits& limits = cuda::state_of(ctx()).limits();
  const struct {
    std::int64_t rows, in, out;
  } sizes[] = {
      {64, 4000, 600},   // few tiles of many pairs
      {65, 1500, 300},   // the same of 128 tokens
      {20, 250, 4000},   // few tokens, few pairs
      {200, 520, 2000},  // two blocks of tokens
      {64, 300, 10300},  // panels that are not as high as they could be
      {70, 140, 16900},  // the same of 128 tokens
      {300, 40, 12800},  // a pair for each block, and a few more
      {440, 40, 17200},  // whole tiles first
      {130, 40, 33700},  // as many tiles as two rounds take
      {17, 260, 34000},  // parts through memory
  };
  std::set<int> splits;
  bool lower = false;
  for (const auto& size : sizes) {
    SCOPED_TRACE(size.out);
    const cuda::PanelPlan plan =
        cuda::plan_panels({.tiles = (size.out + 15) / 16,
                           .pairs = static_cast<int>((size.in + 127) / 128),
                           .m = size.rows,
                           .multiprocessors = limits.multiprocessors});
    splits.insert(plan.split);
    lower |= plan.panel_tiles < cuda::kPanelTiles;
    LinearCall call(ctx(), {.rows = {size.rows},
                            .in = size.in,
                            .out = size.out,
                            .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                            .x_dtype = DType::bf16,
                            .out_dtype = DType::bf16});
    ASSERT_TRUE(multiply_by_panels(ctx(), call.args));
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    for (int i = 0; i < 3; ++i) {
      multiply_by_panels(ctx(), call.args);
      EXPECT_TRUE(identical(call.out.read(), first));
    }
  }
  EXPECT_TRUE(lower);
  EXPECT_TRUE(splits.contains(0));
  EXPECT_TRUE(splits.contains(1));
  EXPECT_TRUE(splits.contains(2));
}

}  // namespace
}  // namespace tessera::test
