// The five products of the gradients on a warpgroup's 64 keys, and the store of a gradient.
#pragma once

#include <cstdint>

#include "cuda/attention/backward/hopper/block.cuh"
#include "cuda/tile/hopper/panel_products.cuh"

namespace tessera::cuda::backward {

// s = keys queries^T: [64, queries] from [64, dim] and [queries, dim]. S^T of k and q, dP^T of v
// and d_out.
template <typename B>
__device__ void start_pairs(float (&s)[B::kQueries / 2], const unsigned char* keys,
                            const unsigned char* queries) {
  tile::start_panels_product<typename B::T, B::kDim, B::kKeyPanel, B::kQueryPanel>(s, keys,
                                                                                   queries);
}

// sums += weights queries: [64, dim] from [64, queries] in registers and [queries, dim]. dV of P^T
// and d_out, dK of dS^T and q.
template <typename B>
__device__ void start_key_sums(float (&sums)[B::kDim / 2],
                               const std::uint32_t (&weights)[B::kQueries / 16][4],
                               const unsigned char* queries) {
  tile::start_registers_product<typename B::T, B::kQueryPanel>(sums, weights, queries);
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

// Stores factor * sums to rows of keys.
template <typename B>
__device__ void store_keys(const HeadRows& to, int batch, int kv_head, int first_key, int n_k,
                           int dim, float factor, const float (&sums)[B::kDim / 2]) {
  using T = typename B::T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = first_key + 16 * warp + lane / 4 + 8 * r;
    tile::store_half(to.at<T>(batch, key, kv_head), r, key < n_k, dim, factor, sums);
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
