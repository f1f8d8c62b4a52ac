// The plain kernels of linear().
//
// multiply_few: one warp for each output feature. Lane l decodes the feature's weights l, l + 32,
// ..., each once, and multiplies them with up to eight tokens; the lanes' sums are added at the
// end.
//
//              k ->  0  1  2 .. 31 | 32 33 ..
//   W  feature n     l0 l1 l2 .. l31| l0 l1 ..      sums[m] += w * x[m, k]
//   x  tokens m..m+7  |  |  |     |   |  |          product[m, n] = sum over lanes
#include "cuda/linear/portable/plain.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/quant/codec.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

constexpr std::int64_t blocks_for(std::int64_t items, int per_block) {
  return (items + per_block - 1) / per_block;
}

// ---- product ------------------------------------------------------------------------------------

// Tokens first .. first + count with feature n; count is at most kPlainTokens.
template <typename T, typename Decoder>
__device__ void dot_rows(const Rows& x, std::int64_t first, int count, const Decoder& weight,
                         std::int64_t n, std::int64_t out_features, float* product) {
  const int lane = threadIdx.x % kWarp;
  const T* rows[kPlainTokens];
  float sums[kPlainTokens] = {};
#pragma unroll  // so that pointers and sums stay in registers
  for (int m = 0; m < kPlainTokens; ++m) rows[m] = x.row<const T>(first + (m < count ? m : 0));
  for (std::int64_t k = lane; k < x.cols(); k += kWarp) {
    const float w = weight(n, k);
#pragma unroll
    for (int m = 0; m < kPlainTokens; ++m) {
      if (m < count) sums[m] += w * to_f32(rows[m][k]);
    }
  }
#pragma unroll
  for (int m = 0; m < kPlainTokens; ++m) {
    const float sum = warp_reduce(sums[m], Sum());
    if (lane == 0 && m < count) product[(first + m) * out_features + n] = sum;
  }
}

template <typename T, typename Decoder>
__global__ void __launch_bounds__(kThreads)
    multiply_rows(Rows x, Decoder weight, std::int64_t out_features, float* product) {
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  for (std::int64_t n = warp; n < out_features; n += std::int64_t{gridDim.x} * kWarps) {
    for (std::int64_t first = 0; first < x.rows(); first += kPlainTokens) {
      const std::int64_t left = x.rows() - first;
      const int count = static_cast<int>(left < kPlainTokens ? left : kPlainTokens);
      dot_rows<T>(x, first, count, weight, n, out_features, product);
    }
  }
}

// ---- conversion ---------------------------------------------------------------------------------

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) convert_rows(Rows from, To* to) {
  for (std::int64_t row = blockIdx.x; row < from.rows(); row += gridDim.x) {
    const From* x = from.row<const From>(row);
    for (std::int64_t k = threadIdx.x; k < from.cols(); k += kThreads) {
      to[row * from.cols() + k] = from_f32<To>(to_f32(x[k]));
    }
  }
}

}  // namespace

void multiply_few(Context& ctx, const Tensor& x, const Weight& weight, float* product) {
  const Rows rows(x);
  const std::int64_t n = weight.out_features;
  const Launch launch(ctx, "linear");
  with_decoder(weight, [&](auto decoder) {
    with_float_type(x.dtype, [&](auto type) {
      launch(multiply_rows<decltype(type), decltype(decoder)>,
             {.blocks = blocks_for(n, kWarps), .threads = kThreads}, rows, decoder, n, product);
    });
  });
}

void pack_rows(Context& ctx, const Tensor& from, const Tensor& to) {
  const Rows rows(from);
  const Launch launch(ctx, "linear");
  with_float_type(from.dtype, [&](auto type) {
    with_float_type(to.dtype, [&](auto to_type) {
      using To = decltype(to_type);
      launch(convert_rows<decltype(type), To>, {.blocks = rows.rows(), .threads = kThreads}, rows,
             to.ptr<To>());
    });
  });
}

}  // namespace tessera::cuda
