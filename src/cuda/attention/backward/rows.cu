#include "cuda/attention/backward/rows.h"

#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/piece.cuh"

namespace tessera::cuda::backward {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 16;  // of a row: at D 128 each has one piece of 16 bytes
constexpr int kRows = kThreads / kLanes;

template <typename T>
__device__ float dot_pieces(const T* a, const T* b, int dim, int lane) {
  constexpr int kSize = Piece<T>::kSize;
  float sum = 0.f;
  for (int d = lane * kSize; d < dim; d += kLanes * kSize) {
    Piece<T> x, y;
    *reinterpret_cast<uint4*>(x.words) = *reinterpret_cast<const uint4*>(a + d);
    *reinterpret_cast<uint4*>(y.words) = *reinterpret_cast<const uint4*>(b + d);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum = fmaf(x[i], y[i], sum);
  }
  return sum;
}

template <typename T>
__device__ float dot_elements(const T* a, const T* b, int dim, int lane) {
  float sum = 0.f;
  for (int d = lane; d < dim; d += kLanes) sum = fmaf(to_f32(a[d]), to_f32(b[d]), sum);
  return sum;
}

// Rows are counted as [batch, rows, heads]: neighbours are adjacent in memory.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    find_values(AttentionCall call, HeadRows d_out, bool vectors, RowValues to, std::int64_t n) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRows; first < n;
       first += std::int64_t{gridDim.x} * kRows) {
    const std::int64_t item = first + static_cast<int>(threadIdx.x) / kLanes;
    const std::int64_t head = item % call.heads, row = item / call.heads % to.rows;
    const std::int64_t batch = item / call.heads / to.rows;
    const bool there = item < n && row < call.n_q;
    float sum = 0.f;
    if (there) {
      const T* a = d_out.at<const T>(batch, row, head);
      const T* b = call.out.at<const T>(batch, row, head);
      sum = vectors ? dot_pieces(a, b, call.dim, lane) : dot_elements(a, b, call.dim, lane);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (lane != 0 || item >= n) continue;
    constexpr float kLog2e = 1.4426950408889634f;
    const float lse = there ? call.lse[batch * call.lse_strides[0] + head * call.lse_strides[1] +
                                       row * call.lse_strides[2]]
                            : -INFINITY;
    const std::int64_t at = (batch * call.heads + head) * to.rows + row;
    to.exponent[at] = lse == -INFINITY ? INFINITY : lse * kLog2e;
    to.delta[at] = sum;
  }
}

}  // namespace

void find_row_values(Context& ctx, const AttentionCall& call, const HeadRows& d_out, bool vectors,
                     const RowValues& to) {
  const std::int64_t batch = call.q_offsets != nullptr ? 1 : call.sequences;
  const std::int64_t n = batch * call.heads * to.rows;
  if (n == 0) return;
  with_float_type(call.dtype, [&](auto type) {
    const Launch launch(ctx, "attention_backward (rows)");
    launch(find_values<decltype(type)>,
           {.blocks = (n + kRows - 1) / kRows, .threads = dim3(kThreads)}, call, d_out, vectors, to,
           n);
  });
}

}  // namespace tessera::cuda::backward
