// The two products of attention on a warpgroup's 64 rows, and its output's way to memory.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/softmax.cuh"
#include "cuda/tile/hopper/wgmma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::hopper {

// s = q k^T: [64, keys] from [64, dim] and [keys, dim].
template <typename K>
__device__ void start_scores(float (&s)[K::kKeys / 2], const unsigned char* q,
                             const unsigned char* k) {
  const std::uint64_t a = tile::depth_contiguous(q), b = tile::depth_contiguous(k);
#pragma unroll
  for (int step = 0; step < K::kDim / 16; ++step) {
    const int panel = step / 4, within = step % 4 * 32;
    tile::Wgmma<K::kKeys>::template shared<typename K::T, tile::BLayout::depth_contiguous>(
        s, tile::moved(a, panel * K::kQueryPanel + within),
        tile::moved(b, panel * K::kKeyPanel + within), step > 0);
  }
  tile::wgmma_commit();
}

// o += p v: [64, dim] from [64, keys] and [keys, dim].
template <typename K>
__device__ void start_output(float (&o)[K::kDim / 2], const std::uint32_t (&p)[K::kKeys / 16][4],
                             const unsigned char* v) {
  const std::uint64_t b = tile::columns_contiguous(v, K::kKeyPanel);
#pragma unroll
  for (int step = 0; step < K::kKeys / 16; ++step) {
    tile::Wgmma<K::kDim>::template registers<typename K::T, tile::BLayout::columns_contiguous>(
        o, p[step], tile::moved(b, step * 2048));
  }
  tile::wgmma_commit();
}

// Stores rows of o. Each lane has pairs of elements spread over two rows; the four lanes of a quad
// exchange them so that each has 16 bytes in one place.
template <typename K, typename Item>
__device__ void store(const HopperCall& call, const Item& work, int first_row,
                      float (&o)[K::kDim / 2], const Softmax& softmax) {
  using T = typename K::T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + 16 * warp + lane / 4 + 8 * r;
    // Tiles of rows end with the last row, or begin with the first.
    const bool inside = K::kPattern ? row < call.n_q : row >= 0;
    const float sum = tile::quad_sum(softmax.sum[r]);
    const float factor = sum == 0.f ? 0.f : 1.f / sum;
    T* to = static_cast<T*>(call.out) + work.batch * call.out_batch_stride +
            row * call.out_row_stride + work.head * call.out_head_stride;
#pragma unroll
    for (int j = 0; j < K::kDim / 8; j += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = 0;
        if (j + i < K::kDim / 8) {
          const float* pair = &o[4 * (j + i) + 2 * r];
          words[i] = pack(pair[0] * factor, pair[1] * factor, T());
        }
      }
      const uint4 part = tile::quad_transpose(words[0], words[1], words[2], words[3]);
      const int column = 8 * (j + lane % 4);
      if (inside && column < call.dim) *reinterpret_cast<uint4*>(to + column) = part;
    }
    if (call.lse != nullptr && inside && lane % 4 == 0) {
      constexpr float kLn2 = 0.6931471805599453f;
      call.lse[work.batch * call.lse_batch_stride + work.head * call.lse_head_stride +
               row * call.lse_row_stride] =
          sum == 0.f ? -INFINITY : (softmax.largest[r] * call.exponent_scale + log2f(sum)) * kLn2;
    }
  }
}

}  // namespace tessera::cuda::hopper
