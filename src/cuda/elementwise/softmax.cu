// Softmax over the last dimension: one block for each row, three passes. Thread t takes elements
// t, t + 256, ... in every pass and writes only what it alone still reads: in place works.
//
//   pass 1   the largest element, and whether there is a NaN
//   pass 2   sum of exp(scale * (x - largest))
//   pass 3   exp(scale * (x - largest)) / sum -> out
#include "cuda/elementwise/softmax.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <typename In, typename Out>
__device__ void softmax_row(const In* x, Out* out, std::int64_t n, float scale) {
  float largest = -INFINITY;
  bool nan = false;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float v = to_f32(x[i]);
    largest = fmaxf(largest, v);  // ignores a NaN, hence `nan`
    nan = nan || isnan(v);
  }
  largest = block_reduce<kWarps>(largest, Max());
  if (__syncthreads_or(nan) || largest == INFINITY) {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) out[i] = from_f32<Out>(nanf(""));
    return;
  }
  if (largest == -INFINITY) {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) out[i] = from_f32<Out>(0.f);
    return;
  }

  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += expf(scale * (to_f32(x[i]) - largest));
  }
  const float factor = 1.f / block_reduce<kWarps>(sum, Sum());

  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    out[i] = from_f32<Out>(expf(scale * (to_f32(x[i]) - largest)) * factor);
  }
}

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads) softmax_rows(Rows x, Rows out, float scale) {
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    softmax_row(x.row<const In>(row), out.row<Out>(row), x.cols(), scale);
  }
}

}  // namespace

void softmax(Context& ctx, const SoftmaxArgs& args) {
  if (args.x.numel() == 0) return;
  const Rows x(args.x), out(args.out);
  const Launch launch(ctx, "softmax");
  with_float_type(args.x.dtype, [&](auto in) {
    with_float_type(args.out.dtype, [&](auto to) {
      launch(softmax_rows<decltype(in), decltype(to)>, {.blocks = x.rows(), .threads = kThreads}, x,
             out, args.scale);
    });
  });
}

}  // namespace tessera::cuda
