// LayerNorm and RMSNorm of any width and strides: one block for each row. (Rows of whole 16-byte
// pieces stay in registers instead: norm_registers.cu.) Thread t takes elements t, t + 256, ... in
// every pass, so a thread only ever rereads what it wrote itself, and only the reductions need
// barriers. The row is small: after the first pass it comes from the L1 and L2 caches.
//
//   pass 1   s = ((x + r0) + r1) + r2, each partial sum rounded -> sum     total -> mean
//            (x after dropout, if there is any)
//   pass 2   (s - mean)^2                                                  total -> deviation
//   pass 3   (s - mean) / deviation * weight + bias -> out
#include "cuda/norm/norm.h"

#include "core/philox.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/norm/norm_registers.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;  // ten elements each of a 2560-wide row
constexpr int kWarps = kThreads / kWarp;

constexpr int kMaxResiduals = 3;

struct NormRows {
  Rows x, residuals[kMaxResiduals], sum, out;
  AnyFloats weight, bias;
  int n_residuals;
  float eps;
  std::uint64_t seed;
  std::uint32_t drop_below;  // words of Philox below it drop; 0: none
  float kept;
};

// x's element i of a row, after dropout.
template <typename T>
__device__ T kept_element(const NormRows& args, const T* x, std::int64_t row, std::int64_t i) {
  if (args.drop_below == 0) return x[i];
  const auto column = static_cast<std::uint32_t>(i);
  const bool dropped = norm_dropout_words(args.seed, row, column)[column % 4] < args.drop_below;
  return from_f32<T>(dropped ? 0.f : to_f32(x[i]) * args.kept);
}

template <typename T>
__device__ void norm_row(const NormRows& args, std::int64_t row, bool centred) {
  const std::int64_t n = args.x.cols();
  const T* x = args.x.row<const T>(row);
  T* out = args.out.row<T>(row);
  const T* s = x;  // the input of the norm: the sum, if there are residuals
  float total = 0;
  if (args.n_residuals > 0) {
    T* sum = args.sum.row<T>(row);
    const T* residuals[kMaxResiduals];
    for (int r = 0; r < kMaxResiduals; ++r) {
      residuals[r] = r < args.n_residuals ? args.residuals[r].row<const T>(row) : nullptr;
    }
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
      T partial = kept_element(args, x, row, i);
#pragma unroll  // so that the pointers stay in registers
      for (int r = 0; r < kMaxResiduals; ++r) {
        if (r < args.n_residuals) partial = from_f32<T>(to_f32(partial) + to_f32(residuals[r][i]));
      }
      sum[i] = partial;
      total += to_f32(partial);
    }
    s = sum;
  } else if (centred) {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) total += to_f32(s[i]);
  }
  const float mean = centred ? block_reduce<kWarps>(total, Sum()) / n : 0.f;

  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float difference = to_f32(s[i]) - mean;
    squares += difference * difference;
  }
  const float variance = block_reduce<kWarps>(squares, Sum()) / n;
  const float scale = 1.f / sqrtf(variance + args.eps);

  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float normal = (to_f32(s[i]) - mean) * scale * args.weight[i];
    out[i] = from_f32<T>(args.bias.given() ? normal + args.bias[i] : normal);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) norm_rows(NormRows args, bool centred) {
  for (std::int64_t row = blockIdx.x; row < args.x.rows(); row += gridDim.x) {
    norm_row<T>(args, row, centred);
  }
}

const char* norm(Context& ctx, const char* name, const NormArgs& args, bool centred) {
  // Whether rows of several dimensions are evenly spaced depends on how many there are.
  const bool in_registers = fits_registers(args) && !(args.fixed_rows && args.x.rank > 2);
  const char* const kernel = in_registers ? "cuda.registers" : "cuda.plain";
  if (args.x.numel() == 0) return kernel;
  if (in_registers) {
    norm_in_registers(ctx, name, args, centred);
    return kernel;
  }
  NormRows rows{
      .x = Rows(args.x),
      .residuals = {Rows(args.residuals[0]), Rows(args.residuals[1]), Rows(args.residuals[2])},
      .sum = Rows(args.sum),
      .out = Rows(args.out),
      .weight = AnyFloats(args.weight),
      .bias = AnyFloats(args.bias),
      .n_residuals = 0,
      .eps = args.eps,
      .seed = args.dropout.seed,
      .drop_below = dropout_threshold(args.dropout.p),
      .kept = kept_factor(args.dropout.p)};
  for (const Tensor& residual : args.residuals) rows.n_residuals += residual.defined();
  const Launch launch(ctx, name);
  with_float_type(args.x.dtype, [&](auto type) {
    launch(norm_rows<decltype(type)>, {.blocks = rows.x.rows(), .threads = kThreads}, rows,
           centred);
  });
  return kernel;
}

}  // namespace

const char* layer_norm(Context& ctx, const NormArgs& args) {
  return norm(ctx, "layer_norm", args, true);
}
const char* rms_norm(Context& ctx, const NormArgs& args) {
  return norm(ctx, "rms_norm", args, false);
}

}  // namespace tessera::cuda
