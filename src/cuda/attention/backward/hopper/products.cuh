// The five products of the gradients on a warpgroup's 64 keys, and a gradient's way to memory.
#pragma once

#include <cstdint>

#include "cuda/attention/backward/hopper/block.cuh"
#include "cuda/tile/hopper/wgmma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::backward {

// s = keys queries^T: [64, queries] from [64, dim] and [queries, dim]. S^T of k and q, dP^T of v
// and d_out.
template <typename B>
__device__ void start_pairs(float (&s)[B::kQueries / 2], const unsigned char* keys,
                            const unsigned char* queries) {
  const std::uint64_t a = tile::depth_contiguous(keys), b = tile::depth_contiguous(queries);
#pragma unroll
  for (int step = 0; step < B::kDim / 16; ++step) {
    const int panel = step / 4, within = step % 4 * 32;
    tile::Wgmma<B::kQueries>::template shared<typename B::T, tile::BLayout::depth_contiguous>(
        s, tile::moved(a, panel * B::kKeyPanel + within),
        tile::moved(b, panel * B::kQueryPanel + within), step > 0);
  }
  tile::wgmma_commit();
}

// sums += weights queries: [64, dim] from [64, queries] in registers and [queries, dim]. dV of P^T
// and d_out, dK of dS^T and q.
template <typename B>
__device__ void start_key_sums(float (&sums)[B::kDim / 2],
                               const std::uint32_t (&weights)[B::kQueries / 16][4],
                               const unsigned char* queries) {
  const std::uint64_t b = tile::columns_contiguous(queries, B::kQueryPanel);
#pragma unroll
  for (int step = 0; step < B::kQueries / 16; ++step) {
    tile::Wgmma<B::kDim>::template registers<typename B::T, tile::BLayout::columns_contiguous>(
        sums, weights[step], tile::moved(b, step * 2048));
  }
  tile::wgmma_commit();
}

// piece = dS keys: [64, 64] from [64, 128 keys] and [128 keys, 64 columns].
template <typename B>
__device__ void start_query_piece(float (&piece)[32], const unsigned char* d_scores,
                                  const unsigned char* keys) {
  const std::uint64_t a = tile::depth_contiguous(d_scores);
  const std::uint64_t b = tile::columns_contiguous(keys, B::kKeyPanel);
#pragma unroll
  for (int step = 0; step < B::kKeys / 16; ++step) {
    tile::Wgmma<64>::shared<typename B::T, tile::BLayout::columns_contiguous>(
        piece, tile::moved(a, step / 4 * B::kQueryPanel + step % 4 * 32),
        tile::moved(b, step * 2048), step > 0);
  }
  tile::wgmma_commit();
}

// Stores factor * sums to rows of keys. Each lane has pairs of elements spread over two rows; the
// four lanes of a quad exchange them so that each has 16 bytes in one place.
template <typename B>
__device__ void store_keys(const HeadRows& to, int batch, int kv_head, int first_key, int n_k,
                           int dim, float factor, const float (&sums)[B::kDim / 2]) {
  using T = typename B::T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = first_key + 16 * warp + lane / 4 + 8 * r;
    T* row = to.at<T>(batch, key, kv_head);
#pragma unroll
    for (int j = 0; j < B::kDim / 8; j += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = 0;
        if (j + i < B::kDim / 8) {
          const float* pair = &sums[4 * (j + i) + 2 * r];
          words[i] = pack(pair[0] * factor, pair[1] * factor, T());
        }
      }
      const uint4 part = tile::quad_transpose(words[0], words[1], words[2], words[3]);
      const int column = 8 * (j + lane % 4);
      if (key < n_k && column < dim) *reinterpret_cast<uint4*>(row + column) = part;
    }
  }
}

// Adds a piece to its sums in memory, in any order with other blocks. (cuda::ptx has no vectors.)
__device__ inline void add_piece(float* to, const float (&piece)[32]) {
  const int thread = threadIdx.x % tile::kWarpgroup;
#pragma unroll
  for (int eight = 0; eight < 8; ++eight) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     to + place_in_piece(thread, eight)),
                 "f"(piece[4 * eight]), "f"(piece[4 * eight + 1]), "f"(piece[4 * eight + 2]),
                 "f"(piece[4 * eight + 3])
                 : "memory");
  }
}

}  // namespace tessera::cuda::backward
