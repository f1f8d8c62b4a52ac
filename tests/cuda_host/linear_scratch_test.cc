// The scratch that linear() reports on a GPU is enough for every number of tokens up to the given
// one. Its kernels are stand-ins that take scratch (linear_kernels.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/workspace.h"
#include "cuda/linear/linear.h"
#include "cuda_host/fake_cuda_test.h"
#include "cuda_host/linear_kernels.h"

namespace tessera::test {
namespace {

class LinearScratch : public FakeCudaTest {};

// The most scratch that any call with 1 to `most_m` tokens takes.
template <typename Call>
std::int64_t most_taken(Context& ctx, std::int64_t most_m, Call&& call) {
  std::int64_t most = 0;
  for (std::int64_t m = 1; m <= most_m; ++m) {
    ctx.workspace().reset_peak();
    call(m);
    most = std::max(most, ctx.workspace_peak_bytes());
  }
  return most;
}

TEST_F(LinearScratch, OfLinearIsEnoughAndNotTooMuch) {
  Context ctx({.device = Device::cuda(), .threads = 1});
  for (const Format format : {Format::dense, Format::nvfp4}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      for (const DType weight_dtype : {DType::f32, DType::f16}) {
        for (const bool with_bias : {false, true}) {
          for (const std::int64_t m : {1, 8, 9, 70}) {
            const std::int64_t n = 300, k = 200;
            const Weight w = fake_weight(format, weight_dtype, n, k);
            const auto args = [&](std::int64_t tokens) {
              return LinearArgs{
                  .x = fake_tensor(dtype, tokens, k),
                  .weight = w,
                  .bias = with_bias ? fake_tensor(dtype, 1, n).select(0, 0) : Tensor{},
                  .out = fake_tensor(dtype, tokens, n)};
            };
            const std::int64_t said = cuda::linear_scratch_bytes(ctx, args(m));
            const std::int64_t taken =
                most_taken(ctx, m, [&](std::int64_t few) { cuda::linear(ctx, args(few)); });
            EXPECT_GE(said, taken);
            EXPECT_LE(said, taken + 64);
          }
        }
      }
    }
  }
}

TEST_F(LinearScratch, OfAGatedPairIsEnoughAndNotTooMuch) {
  Context ctx({.device = Device::cuda(), .threads = 1});
  for (const Format gate : {Format::dense, Format::int4}) {
    for (const Format up : {Format::dense, Format::int4}) {
      for (const std::int64_t m : {1, 8, 9, 70}) {
        const std::int64_t n = 300, k = 200;
        const auto args = [&](std::int64_t tokens) {
          return GatedLinearArgs{.x = fake_tensor(DType::bf16, tokens, k),
                                 .gate = fake_weight(gate, DType::bf16, n, k),
                                 .up = fake_weight(up, DType::bf16, n, k),
                                 .out = fake_tensor(DType::bf16, tokens, n)};
        };
        const std::int64_t said = cuda::gated_linear_scratch_bytes(ctx, args(m));
        const std::int64_t taken =
            most_taken(ctx, m, [&](std::int64_t few) { cuda::gated_linear(ctx, args(few)); });
        EXPECT_GE(said, taken);
        EXPECT_LE(said, taken + 64);
      }
    }
  }
}

// Weights in tiles, on a GPU with all kernels. Scratch may shrink from one kernel to the next.
TEST_F(LinearScratch, OfTilesIsEnoughWhateverTheKernel) {
  fake::set_gpus({{.major = 9, .minor = 0, .multiprocessors = 132, .shared_bytes = 227 << 10}});
  Context ctx({.device = Device::cuda(), .threads = 1});
  for (const bool gated : {false, true}) {
    for (const std::int64_t n : {300, 5000}) {
      for (const std::int64_t most_m : {1, 9, 17, 100, 300, 1100}) {
        const std::int64_t k = 4096;
        const Weight weight = fake_weight(Format::nvfp4, DType::u8, n, k, 16, /*tiled=*/true);
        const auto x = [&](std::int64_t m) { return fake_tensor(DType::bf16, m, k); };
        const auto out = [&](std::int64_t m) { return fake_tensor(DType::bf16, m, n); };
        const auto one = [&](std::int64_t m) {
          return LinearArgs{.x = x(m), .weight = weight, .out = out(m)};
        };
        const auto pair = [&](std::int64_t m) {
          return GatedLinearArgs{.x = x(m), .gate = weight, .up = weight, .out = out(m)};
        };
        const std::int64_t said = gated ? cuda::gated_linear_scratch_bytes(ctx, pair(most_m))
                                        : cuda::linear_scratch_bytes(ctx, one(most_m));
        const std::int64_t taken = most_taken(ctx, most_m, [&](std::int64_t m) {
          gated ? cuda::gated_linear(ctx, pair(m)) : cuda::linear(ctx, one(m));
        });
        EXPECT_GE(said, taken) << n << ", " << most_m << (gated ? ", gated" : "");
        EXPECT_LE(said, taken + 64) << n << ", " << most_m << (gated ? ", gated" : "");
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
