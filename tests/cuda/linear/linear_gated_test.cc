// gated_linear() of many tokens on Hopper: gate and up side by side in one kernel, or as two
// products and a pass over both.
#include <gtest/gtest.h>

#include "cuda/linear/choose.h"
#include "cuda/linear/kernels.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/compare.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaGatedTest : public HopperTest {
 protected:
  // Twice by this kernel: both are correct and equal in all bits. False: it does not take the call.
  // plan: from PanelSizes to a plan of the kernel; not given: its own.
  template <typename Plan = std::nullptr_t>
  bool check(cuda::KernelId id, const GatedCase& c, Plan plan = {}) {
    SCOPED_TRACE(testing::Message()
                 << cuda::linear_kernel(id).name << ", " << c.gate.text() << ", " << name(c.dtype)
                 << ", " << c.rows << " rows, " << c.in << " x " << c.out);
    GatedCall call(ctx(), c);
    // The copy engine does not take x in every layout; outputs may have any.
    const TestTensor x(ctx(), call.x.read(), c.dtype);
    call.args.x = x;
    const cuda::Product product = cuda::product_of(call.args);
    const cuda::LinearCall gated{ctx(), product, c.rows};
    const cuda::LinearKernel& kernel = cuda::linear_kernel(id);
    if (!kernel.takes(gated)) return false;
    const cuda::KernelPlan chosen = [&]() -> cuda::KernelPlan {
      if constexpr (std::is_null_pointer_v<Plan>) {
        return kernel.plan(gated);
      } else {
        return plan({.tiles = 2 * product.weight.data.shape[0],
                     .pairs = cuda::pairs_of(product.weight),
                     .m = c.rows,
                     .multiprocessors = cuda::state_of(ctx()).limits().multiprocessors,
                     .gated = true});
      }
    }();
    kernel.run(gated, chosen);
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    kernel.run(gated, chosen);
    EXPECT_TRUE(identical(call.out.read(), first));
    return true;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaGatedTest, testing::Values(Device::cuda()), device_name);

const WeightCase kGatedNvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true};
const WeightCase kGatedInt4{.packed = {{.format = Format::int4, .group = 128}}, .prepared = true};

TEST_P(CudaGatedTest, EveryFormatInOneKernel) {
  int calls = 0;
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      const GatedCase few{
          .rows = 70, .in = 200, .out = 37, .gate = weight, .up = weight, .dtype = dtype};
      GatedCase many = few;
      many.rows = 259, many.out = 88;
      if (check(cuda::KernelId::panels, few) && check(cuda::KernelId::wide, many)) ++calls;
    }
  }
  EXPECT_GE(calls, 2 * 6);  // formats
}

// Around the borders of tiles of features and of tokens, by every way to share them.
TEST_P(CudaGatedTest, BordersOfTiles) {
  for (const std::int64_t rows : {1, 17, 32, 33, 64, 65, 128, 129, 300}) {
    for (const std::int64_t out : {1, 16, 17, 120, 129, 260}) {
      const GatedCase c{.rows = rows,
                        .in = 520,
                        .out = out,
                        .gate = kGatedNvfp4,
                        .up = kGatedNvfp4,
                        .dtype = DType::bf16};
      EXPECT_TRUE(check(cuda::KernelId::panels, c));
      EXPECT_TRUE(check(cuda::KernelId::panels, c, [](const cuda::PanelSizes& sizes) {
        return cuda::plan_even_panels(sizes);
      }));
    }
  }
  for (const std::int64_t rows : {256, 257, 511, 513}) {
    for (const std::int64_t out : {8, 64, 72, 128, 136, 264}) {
      const GatedCase c{.rows = rows,
                        .in = 264,
                        .out = out,
                        .gate = kGatedInt4,
                        .up = kGatedInt4,
                        .dtype = DType::f16,
                        .layout = out == 72 ? Layout::spaced : Layout::contiguous,
                        .activation = out == 64 ? Activation::gelu : Activation::silu};
      EXPECT_TRUE(check(cuda::KernelId::wide, c));
      EXPECT_TRUE(check(cuda::KernelId::wide, c,
                        [](const cuda::PanelSizes& sizes) { return cuda::plan_even_wide(sizes); }));
    }
  }
}

// Tiles that are dealt out whole, and parts of tiles that are added up.
TEST_P(CudaGatedTest, BlocksShareTiles) {
  for (const std::int64_t out : {1000, 9000}) {
    EXPECT_TRUE(check(cuda::KernelId::panels, {.rows = 130,
                                               .in = 392,
                                               .out = out,
                                               .gate = kGatedNvfp4,
                                               .up = kGatedNvfp4,
                                               .dtype = DType::f16}));
    EXPECT_TRUE(check(cuda::KernelId::wide, {.rows = 260,
                                             .in = 392,
                                             .out = out,
                                             .gate = kGatedNvfp4,
                                             .up = kGatedNvfp4,
                                             .dtype = DType::bf16}));
  }
}

// What takes no kernel of its own: gate and up of two kinds, and lines that are not whole vectors.
TEST_P(CudaGatedTest, OthersAreMadeApart) {
  const GatedCase mixed{.rows = 300,
                        .in = 256,
                        .out = 64,
                        .gate = kGatedNvfp4,
                        .up = kGatedInt4,
                        .dtype = DType::f16};
  EXPECT_FALSE(check(cuda::KernelId::panels, mixed));
  EXPECT_FALSE(check(cuda::KernelId::wide, mixed));
  GatedCase odd = mixed, few = mixed;
  odd.up = few.up = kGatedNvfp4;
  odd.out = 67;
  few.rows = 255;
  EXPECT_FALSE(check(cuda::KernelId::wide, odd));
  EXPECT_FALSE(check(cuda::KernelId::wide, few));
}

TEST_P(CudaGatedTest, ManyRowsAreCorrectAndTheSameTwice) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (Layout layout : {Layout::contiguous, Layout::sliced}) {
      for (std::int64_t rows : {17, 70, 130}) {
        GatedCall call(ctx(), {.rows = rows,
                               .in = 1024,
                               .out = rows == 70 ? 1000 : 37,
                               .gate = kGatedNvfp4,
                               .up = rows == 130 ? kGatedInt4 : kGatedNvfp4,
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
