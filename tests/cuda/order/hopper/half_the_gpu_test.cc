// Kernels whose blocks wait for each other, while somebody else uses half of the GPU: a block waits
// only for such as have started before it, so it never waits for one that finds no room; or all
// blocks start together, once there is room for all.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "cuda/linear/kernels.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/plan/panel_plan.h"
#include "cuda/linear/plan/wide_plan.h"
#include "cuda/linear/product.h"
#include "cuda/order/hopper/held_multiprocessors.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/decode_case.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class HalfTheGpuTest : public HopperTest {
 protected:
  int multiprocessors() { return cuda::state_of(ctx()).limits().multiprocessors; }

  // Blocks share tiles evenly, in parts that pass through memory. plan: from PanelSizes to a plan
  // of the kernel; blocks: how many that has.
  template <typename Planner, typename Blocks>
  void check(cuda::KernelId id, const LinearCase& c, Planner planner, Blocks blocks) {
    SCOPED_TRACE(c.text());
    ctx().trace().enable(false);
    LinearCall call(ctx(), c);
    const cuda::Product product = cuda::product_of(call.args);
    const cuda::LinearCall one{ctx(), product, call.args.x.shape[0]};
    const cuda::LinearKernel& kernel = cuda::linear_kernel(id);
    ASSERT_TRUE(kernel.takes(one));
    const auto plan = planner({.tiles = product.weight.data.shape[0],
                               .pairs = cuda::pairs_of(product.weight),
                               .m = one.m,
                               .multiprocessors = multiprocessors()});
    ASSERT_GT(blocks(plan), multiprocessors() - multiprocessors() / 2);  // some find no room
    // The first run brings the kernel to the GPU and may take more scratch, the second then makes
    // one block of all scratch. Loading and freeing wait for whatever runs on the GPU, so both come
    // before it is held.
    for (int i = 0; i < 2; ++i) kernel.run(one, plan);
    ctx().synchronize();
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    const auto other = context(1);
    bool held = false;
    {
      const HeldMultiprocessors half(*other, multiprocessors() / 2);
      for (int i = 0; i < 3; ++i) kernel.run(one, plan);
      ctx().synchronize();
      held = half.all_held();
    }
    EXPECT_TRUE(held) << "the kernel ended only when it had the GPU for itself";
    EXPECT_TRUE(identical(call.out.read(), first));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, HalfTheGpuTest, testing::Values(Device::cuda()), device_name);

LinearCase nvfp4_case(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.rows = {rows},
          .in = in,
          .out = out,
          .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
          .x_dtype = DType::bf16,
          .out_dtype = DType::bf16};
}

TEST_P(HalfTheGpuTest, Panels) {
  const auto blocks = [](const cuda::PanelPlan& plan) { return plan.blocks; };
  for (const LinearCase& c : {nvfp4_case(20, 2048, 8448), nvfp4_case(17, 264, 34000)}) {
    check(cuda::KernelId::panels, c, cuda::plan_even_panels, blocks);
  }
}

TEST_P(HalfTheGpuTest, Wide) {
  const auto blocks = [](const cuda::WidePlan& plan) { return plan.clusters * cuda::kWideCluster; };
  for (const LinearCase& c : {nvfp4_case(20, 2048, 3000), nvfp4_case(20, 136, 17000)}) {
    check(cuda::KernelId::wide, c, cuda::plan_even_wide, blocks);
  }
}

TEST_P(HalfTheGpuTest, DecodeLayersWait) {
  ctx().trace().enable(false);
  DecodeCall call(ctx(), {.hidden = 768, .heads = 12, .inner = 3072});
  Array expected;
  for (int i = 0; i < 2; ++i) {
    call.restore_x();
    ASSERT_TRUE(decode_layers(ctx(), call.args));
    expected = call.read_x();
  }
  const auto other = context(1);
  call.restore_x();
  {
    const HeldMultiprocessors half(*other, multiprocessors() / 2);
    ASSERT_TRUE(decode_layers(ctx(), call.args));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(half.all_held()) << "the launch waited on the host";
    EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(ctx().stream())), cudaErrorNotReady);
  }
  EXPECT_TRUE(identical(call.read_x(), expected));
}

}  // namespace
}  // namespace tessera::test
