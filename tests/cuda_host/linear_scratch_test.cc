// What linear() on a GPU says it needs of the workspace holds for every number of rows up to the
// one it was asked for. Its kernels and cuBLASLt are stand-ins that take scratch and do nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/workspace.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/linear/layout/decode_tiles.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/linear.h"
#include "cuda/linear/matmul.h"
#include "cuda/linear/portable/mma.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/linear/portable/stream.h"
#include "cuda/quant/dequantize.h"
#include "cuda_host/fake_cuda_test.h"

namespace tessera::cuda {

void multiply_few(Context&, const Tensor&, const Weight&, float*) {}
void pack_rows(Context&, const Tensor&, const Tensor&) {}
void finish(Context&, const Epilogue&) {}
void dequantize(Context&, const Weight&, const Tensor&) {}
void unpack(Context&, const Weight&, const Weight&) {}
void decode_tiles(Context&, const Weight&, const Tensor&) {}
std::int64_t stream_rows_at_most(Context&, const Product& product) {
  return product.weight.layout == WeightLayout::cuda_tiles && product.x.dtype != DType::f32 ? 8 : 0;
}
void stream(Context&, const Product&) {}
bool mma_takes(const Product&) { return false; }
std::int64_t mma_scratch_bytes(Context&, const Product&, std::int64_t) { return 0; }
void multiply_mma(Context&, const Product&, void*) {}
bool panels_take(Context&, const Product&) { return false; }
std::int64_t panels_scratch_bytes(Context&, const Product&, std::int64_t) { return 0; }
void multiply_panels(Context&, const Product&, void*) {}
bool strips_take(Context&, const Product&, std::int64_t) { return false; }
void multiply_strips(Context&, const Product&) {}
bool wide_takes(Context&, const Product&) { return false; }
std::int64_t wide_scratch_bytes(Context&, const Product&, std::int64_t) { return 0; }
void multiply_wide(Context&, const Product&, void*) {}

std::int64_t matmul_scratch_bytes() { return 5 << 20; }
bool matmul_adds(const Tensor&, const Addends& addends) {
  return !addends.bias.defined() && !addends.residual.defined();
}
void matmul(Context& ctx, const Tensor&, const Tensor&, const Tensor&, const Addends&) {
  Workspace::Frame(ctx.workspace()).take<char>(matmul_scratch_bytes());
}

}  // namespace tessera::cuda

namespace tessera::test {
namespace {

class LinearScratch : public FakeCudaTest {};

// Nobody looks behind these addresses.
Tensor tensor(DType dtype, std::int64_t rows, std::int64_t cols) {
  static char memory[64];
  return Tensor(memory, dtype, {rows, cols}, Device::cuda());
}

Weight weight(Format format, DType dtype, std::int64_t out, std::int64_t in) {
  Weight result = Weight::dense(tensor(dtype, out, in));
  result.format = format;
  return result;
}

// The most that any call with 1 to `rows` rows takes.
template <typename Call>
std::int64_t most_taken(Context& ctx, std::int64_t rows, Call&& call) {
  std::int64_t most = 0;
  for (std::int64_t n = 1; n <= rows; ++n) {
    ctx.workspace().reset_peak();
    call(n);
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
          for (const std::int64_t rows : {1, 8, 9, 70}) {
            const std::int64_t out = 300, in = 200;
            const Weight w = weight(format, weight_dtype, out, in);
            const auto args = [&](std::int64_t n) {
              return LinearArgs{.x = tensor(dtype, n, in),
                                .weight = w,
                                .bias = with_bias ? tensor(dtype, 1, out).select(0, 0) : Tensor{},
                                .out = tensor(dtype, n, out)};
            };
            const std::int64_t said = cuda::linear_scratch_bytes(ctx, args(rows));
            const std::int64_t taken =
                most_taken(ctx, rows, [&](std::int64_t n) { cuda::linear(ctx, args(n)); });
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
      for (const std::int64_t rows : {1, 8, 9, 70}) {
        const std::int64_t out = 300, in = 200;
        const auto args = [&](std::int64_t n) {
          return GatedLinearArgs{.x = tensor(DType::bf16, n, in),
                                 .gate = weight(gate, DType::bf16, out, in),
                                 .up = weight(up, DType::bf16, out, in),
                                 .out = tensor(DType::bf16, n, out)};
        };
        const std::int64_t said = cuda::gated_linear_scratch_bytes(ctx, args(rows));
        const std::int64_t taken =
            most_taken(ctx, rows, [&](std::int64_t n) { cuda::gated_linear(ctx, args(n)); });
        EXPECT_GE(said, taken);
        EXPECT_LE(said, taken + 64);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
