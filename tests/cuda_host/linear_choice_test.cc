// Which kernel linear() chooses on a GPU, by tokens, shape and format, and what it does if a kernel
// is forced. The kernels are stand-ins (linear_kernels.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/linear/choose.h"
#include "cuda/linear/linear.h"
#include "cuda_host/fake_cuda_test.h"
#include "cuda_host/linear_kernels.h"

namespace tessera::test {
namespace {

const fake::Gpu kH200{.major = 9, .minor = 0, .multiprocessors = 132, .shared_bytes = 227 << 10};
const fake::Gpu kA100{.major = 8, .minor = 0, .multiprocessors = 108, .shared_bytes = 163 << 10};

class LinearChoice : public FakeCudaTest {};

// The kinds of weight and x that a case multiplies.
struct Kind {
  Format format;
  std::int64_t group;
  bool tiled;
  DType weight, x;
};
const Kind kDense{Format::dense, 0, false, DType::bf16, DType::bf16};
const Kind kDenseOfTwo{Format::dense, 0, false, DType::bf16, DType::f32};
const Kind kPublished{Format::nvfp4, 16, false, DType::u8, DType::bf16};
const Kind kNvfp4{Format::nvfp4, 16, true, DType::u8, DType::bf16};
const Kind kInt8Groups{Format::int8, 64, true, DType::u8, DType::bf16};
const Kind kFp8{Format::fp8, 0, true, DType::u8, DType::f16};
const Kind kTilesInF32{Format::nvfp4, 16, true, DType::u8, DType::f32};

const char* kernel_for(Context& ctx, const Kind& kind, bool gated, std::int64_t k, std::int64_t n,
                       std::int64_t m) {
  const Weight weight = fake_weight(kind.format, kind.weight, n, k, kind.group, kind.tiled);
  const cuda::Product product{.x = fake_tensor(kind.x, m, k),
                              .weight = weight,
                              .up = gated ? weight : Weight(),
                              .activation = Activation::silu,
                              .out = fake_tensor(kind.x, m, n)};
  return cuda::plan_linear({ctx, product, m}).name();
}

// This kernel is expected from m tokens on, until the next entry.
struct From {
  std::int64_t m;
  const char* kernel;
};
constexpr std::int64_t kTokens[] = {1,   2,   4,   5,   8,    9,    16,   17,   48,   49,  64,  65,
                                    79,  80,  128, 129, 192,  193,  256,  257,  449,  450, 511, 512,
                                    599, 600, 768, 769, 1023, 1024, 1399, 1400, 1700, 4096};

void check(Context& ctx, const Kind& kind, bool gated, std::int64_t k, std::int64_t n,
           const std::vector<From>& expected) {
  std::size_t at = 0;
  for (const std::int64_t m : kTokens) {
    while (at + 1 < expected.size() && expected[at + 1].m <= m) ++at;
    EXPECT_STREQ(kernel_for(ctx, kind, gated, k, n, m), expected[at].kernel)
        << name(kind.format) << (gated ? " gated " : " ") << k << " x " << n << ", " << m;
  }
}

constexpr const char *kStream = "cuda.stream", *kStrips = "cuda.strips", *kPanels = "cuda.panels",
                     *kWide = "cuda.wide", *kMma = "cuda.mma", *kLibrary = "cuda.cublaslt",
                     *kDecode = "cuda.plain.decode";

struct Shape {
  std::int64_t k, n;
};
constexpr Shape kShapes[] = {{768, 3072},   {3072, 768},   {2560, 10240},
                             {10240, 2560}, {4096, 4096},  {4096, 14336},
                             {14336, 4096}, {8192, 28672}, {113, 17}};

TEST_F(LinearChoice, OnHopperByTokensAndShape) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const std::vector<From> small{{1, kStream}, {2, kStrips}, {129, kLibrary}};
  const std::vector<From> large{{1, kStream},   {5, kStrips}, {17, kPanels},  {129, kWide},
                                {257, kPanels}, {449, kWide}, {599, kPanels}, {768, kWide},
                                {769, kPanels}, {1023, kWide}};
  const std::vector<From> middle{
      {450, kWide}, {599, kLibrary}, {768, kWide}, {769, kLibrary}, {1023, kWide}};
  const auto followed_by_middle = [&](std::vector<From> first) {
    first.insert(first.end(), middle.begin(), middle.end());
    return first;
  };
  for (const Kind& kind : {kNvfp4, kFp8}) {
    check(ctx, kind, false, 768, 3072, small);
    check(ctx, kind, false, 3072, 768, small);
    check(ctx, kind, false, 2560, 10240,
          followed_by_middle({{1, kStream}, {2, kStrips}, {17, kPanels}}));
    check(ctx, kind, false, 10240, 2560, followed_by_middle({{1, kStream}, {9, kPanels}}));
    check(ctx, kind, false, 4096, 4096,
          {{1, kStream}, {5, kStrips}, {49, kPanels}, {768, kWide}, {769, kPanels}, {1023, kWide}});
    check(ctx, kind, false, 4096, 14336, large);
    check(ctx, kind, false, 14336, 4096, large);
    check(ctx, kind, false, 8192, 28672, large);
    check(ctx, kind, false, 113, 17, {{1, kStream}, {17, kPanels}, {80, kLibrary}});
  }
}

// With many tokens the library ends a product better that adds a residual. One with an activation
// stays where it is.
TEST_F(LinearChoice, OnHopperByWhatFollowsTheProduct) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const auto plan_for = [&](std::int64_t m, Activation activation, bool residual) {
    const Weight weight = fake_weight(Format::nvfp4, DType::u8, 2560, 10240, 16, true);
    const Tensor out = fake_tensor(DType::bf16, m, 2560);
    const cuda::Product product{.x = fake_tensor(DType::bf16, m, 10240),
                                .weight = weight,
                                .activation = activation,
                                .residual = residual ? out : Tensor(),
                                .out = out};
    return cuda::plan_linear({ctx, product, m});
  };
  EXPECT_STREQ(plan_for(2048, Activation::none, false).name(), kWide);
  EXPECT_FALSE(plan_for(2048, Activation::none, false).apart);
  EXPECT_FALSE(plan_for(511, Activation::none, true).apart);
  EXPECT_TRUE(
      plan_for(512, Activation::none, true).apart);  // the stand-in of the library adds nothing
  EXPECT_FALSE(plan_for(512, Activation::gelu, false).apart);
  EXPECT_FALSE(plan_for(2048, Activation::gelu, false).apart);
}

TEST_F(LinearChoice, OnHopperGatedPairs) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const std::vector<From> small{{1, kStream}, {17, kPanels}, {80, kLibrary}};
  const std::vector<From> middle{{1, kStream}, {17, kPanels},   {450, kWide}, {599, kLibrary},
                                 {768, kWide}, {769, kLibrary}, {1023, kWide}};
  const std::vector<From> large{{1, kStream},   {17, kPanels},  {256, kWide},
                                {257, kPanels}, {449, kWide},   {599, kPanels},
                                {768, kWide},   {769, kPanels}, {1023, kWide}};
  for (const Kind& kind : {kNvfp4, kFp8}) {
    for (const Shape& shape : {kShapes[0], kShapes[1], kShapes[8]}) {
      check(ctx, kind, true, shape.k, shape.n, small);
    }
    check(ctx, kind, true, 2560, 10240, middle);
    check(ctx, kind, true, 10240, 2560, middle);
    check(ctx, kind, true, 4096, 4096,
          {{1, kStream}, {17, kPanels}, {768, kWide}, {769, kPanels}, {1023, kWide}});
    for (const Shape& shape : {kShapes[5], kShapes[6], kShapes[7]}) {
      check(ctx, kind, true, shape.k, shape.n, large);
    }
  }
}

// Calls that the Hopper kernels do not take, and all calls on another GPU.
TEST_F(LinearChoice, OnAnyGpuByTokensAndShape) {
  for (const fake::Gpu& gpu : {kH200, kA100}) {
    fake::set_gpus({gpu});
    Context ctx({.device = Device::cuda(), .threads = 1});
    std::vector<Kind> kinds{kInt8Groups};
    if (gpu.major == 8) kinds.insert(kinds.end(), {kNvfp4, kFp8});
    for (const Kind& kind : kinds) {
      for (const Shape& shape : kShapes) {
        const std::int64_t weights = shape.k * shape.n;
        const std::int64_t library = weights > 120'000'000 ? 193 : weights > 40'000'000 ? 129 : 65;
        for (const bool gated : {false, true}) {
          check(ctx, kind, gated, shape.k, shape.n,
                {{1, kStream}, {17, kMma}, {library, kLibrary}});
        }
      }
    }
  }
}

TEST_F(LinearChoice, ForAnyWeight) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  for (const Shape& shape : kShapes) {
    for (const bool gated : {false, true}) {
      const bool whole_pairs = shape.k % 128 == 0;
      check(ctx, kDense, gated, shape.k, shape.n,
            whole_pairs ? std::vector<From>{{1, kStream}, {5, kLibrary}}
                        : std::vector<From>{{1, kLibrary}});
      for (const Kind& kind : {kDenseOfTwo, kPublished, kTilesInF32}) {
        check(ctx, kind, gated, shape.k, shape.n, {{1, kDecode}, {9, kLibrary}});
      }
    }
  }
  EXPECT_STREQ(kernel_for(ctx, kDense, false, 0, 17, 20), kDecode);  // an empty sum
}

TEST_F(LinearChoice, AGatedPairOfTwoKindsIsMixed) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const cuda::Product product{.x = fake_tensor(DType::bf16, 4, 256),
                              .weight = fake_weight(Format::dense, DType::bf16, 64, 256),
                              .up = fake_weight(Format::nvfp4, DType::u8, 64, 256, 16),
                              .out = fake_tensor(DType::bf16, 4, 64)};
  const cuda::LinearPlan plan = cuda::plan_linear({ctx, product, 4});
  EXPECT_TRUE(plan.apart);
  EXPECT_STREQ(plan.name(), "cuda.mixed");
}

// ---- forced kernels -----------------------------------------------------------------------------

TEST_F(LinearChoice, EveryKernelCanBeForced) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const auto forced = [&](const char* kernel, std::int64_t m) {
    cuda::force_linear_kernel(ctx, kernel);
    const LinearArgs args{.x = fake_tensor(DType::bf16, m, 4096),
                          .weight = fake_weight(Format::nvfp4, DType::u8, 4096, 4096, 16, true),
                          .activation = Activation::gelu,
                          .out = fake_tensor(DType::bf16, m, 4096)};
    EXPECT_STREQ(cuda::linear(ctx, args), kernel) << m;
    EXPECT_STREQ(kernel_for(ctx, kNvfp4, true, 4096, 4096, m), kernel) << m << ", gated";
  };
  for (const cuda::LinearKernel& kernel : cuda::linear_kernels()) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 16}) forced(kernel.name, m);
    if (std::strcmp(kernel.name, kStream) != 0) forced(kernel.name, 17);
  }
  for (const std::int64_t m : {17, 128}) forced(kStrips, m);
  cuda::force_linear_kernel(ctx, "");
  EXPECT_STREQ(kernel_for(ctx, kNvfp4, false, 4096, 4096, 1), kStream);
}

TEST_F(LinearChoice, AForcedKernelThatCannotRunACallNamesThoseThatCan) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  const auto refusal = [&](const char* kernel, const Kind& kind, std::int64_t m) {
    cuda::force_linear_kernel(ctx, kernel);
    return std::string(error_of([&] { kernel_for(ctx, kind, false, 256, 64, m); }).what());
  };
  EXPECT_EQ(refusal(kStream, kNvfp4, 17),
            "the kernel cuda.stream cannot run this call; these can: cuda.strips, cuda.panels, "
            "cuda.wide, cuda.mma, cuda.cublaslt, cuda.plain.decode");
  EXPECT_EQ(refusal(kStrips, kNvfp4, 129),
            "the kernel cuda.strips cannot run this call; these can: cuda.panels, cuda.wide, "
            "cuda.mma, cuda.cublaslt, cuda.plain.decode");
  EXPECT_EQ(refusal(kWide, kDense, 8),
            "the kernel cuda.wide cannot run this call; these can: cuda.stream, cuda.cublaslt, "
            "cuda.plain.decode");
  EXPECT_EQ(error_of([&] { cuda::force_linear_kernel(ctx, "cuda.narrow"); }).what(),
            std::string("there is no linear kernel cuda.narrow; there are cuda.stream, "
                        "cuda.strips, cuda.panels, cuda.wide, cuda.mma, cuda.cublaslt, "
                        "cuda.plain.decode"));
}

TEST_F(LinearChoice, AKernelForcedWhereItCanRunLeavesTheOtherCalls) {
  fake::set_gpus({kH200});
  Context ctx({.device = Device::cuda(), .threads = 1});
  cuda::force_linear_kernel(ctx, kStrips, cuda::Forced::where_it_can);
  EXPECT_STREQ(kernel_for(ctx, kNvfp4, false, 4096, 4096, 2), kStrips);
  EXPECT_STREQ(kernel_for(ctx, kNvfp4, false, 4096, 4096, 500), kPanels);
  EXPECT_STREQ(kernel_for(ctx, kDense, false, 4096, 4096, 2), kStream);
}

}  // namespace
}  // namespace tessera::test
