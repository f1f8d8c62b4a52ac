// The two products of attention on a warpgroup's 64 rows, and the store of its output.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/softmax.cuh"
#include "cuda/tile/hopper/panel_products.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::hopper {

// s = q k^T: [64, keys] from [64, dim] and [keys, dim].
template <typename K>
__device__ void start_scores(float (&s)[K::kKeys / 2], const unsigned char* q,
                             const unsigned char* k) {
  tile::start_panels_product<typename K::T, K::kDim, K::kQueryPanel, K::kKeyPanel>(s, q, k);
}

// o += p v: [64, dim] from [64, keys] and [keys, dim].
template <typename K>
__device__ void start_output(float (&o)[K::kDim / 2], const std::uint32_t (&p)[K::kKeys / 16][4],
                             const unsigned char* v) {
  tile::start_registers_product<typename K::T, K::kKeyPanel>(o, p, v);
}

// Stores rows of o.
template <typename K, typename Item>
__device__ void store(const HopperCall& call, const Item& work, int first_row,
                      float (&o)[K::kDim / 2], const Softmax& softmax) {
  using T = typename K::T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + 16 * warp + lane / 4 + 8 * r;
    // Row tiles end with the last row or, under a pattern, begin with the first.
    const bool inside = K::kPattern ? row < call.n_q : row >= 0;
    const float sum = tile::quad_sum(softmax.sum[r]);
    const float factor = sum == 0.f ? 0.f : 1.f / sum;
    T* to = static_cast<T*>(call.out) + work.batch * call.out_batch_stride +
            (first_query(work) + row) * call.out_row_stride + work.head * call.out_head_stride;
    tile::store_half(to, r, inside, call.dim, factor, o);
    if (call.lse != nullptr && inside && lane % 4 == 0) {
      constexpr float kLn2 = 0.6931471805599453f;
      call.lse[work.batch * call.lse_batch_stride + work.head * call.lse_head_stride +
               (first_query(work) + row) * call.lse_row_stride] =
          sum == 0.f ? -INFINITY : (softmax.largest[r] * call.exponent_scale + log2f(sum)) * kLn2;
    }
  }
}

}  // namespace tessera::cuda::hopper
