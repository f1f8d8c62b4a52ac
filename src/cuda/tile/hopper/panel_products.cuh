// Products of a warpgroup's 64 rows with matrices in shared memory, in swizzled panels of 64
// columns, and the store of its sums. Each start_ function begins a group of wgmma.
#pragma once

#include <cstdint>

#include "cuda/tile/hopper/wgmma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::tile {

// s = a b^T: [64, columns] from [64, depth] and [columns, depth]. The panels of a and b are kPanelA
// and kPanelB bytes apart.
template <typename T, int depth, int kPanelA, int kPanelB, int size>
__device__ void start_panels_product(float (&s)[size], const unsigned char* a_rows,
                                     const unsigned char* b_rows) {
  const std::uint64_t a = depth_contiguous(a_rows), b = depth_contiguous(b_rows);
#pragma unroll
  for (int step = 0; step < depth / 16; ++step) {
    const int panel = step / 4, within = step % 4 * 32;
    Wgmma<2 * size>::template shared<T, BLayout::depth_contiguous>(
        s, moved(a, panel * kPanelA + within), moved(b, panel * kPanelB + within), step > 0);
  }
  wgmma_commit();
}

// sums += a b: [64, columns] from [64, depth] in registers and [depth, columns].
template <typename T, int kPanel, int size, int steps>
__device__ void start_registers_product(float (&sums)[size], const std::uint32_t (&a)[steps][4],
                                        const unsigned char* b_rows) {
  const std::uint64_t b = columns_contiguous(b_rows, kPanel);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    Wgmma<2 * size>::template registers<T, BLayout::columns_contiguous>(sums, a[step],
                                                                        moved(b, step * 2048));
  }
  wgmma_commit();
}

// Stores factor * sums of the lane's upper (half 0) or lower row (half 1) to `row`, as far as it is
// `inside` and has `dim` elements. Each lane has pairs of elements spread over two rows; the four
// lanes of a quad exchange them so that each has 16 bytes in one place.
template <typename T, int size>
__device__ void store_half(T* row, int half, bool inside, int dim, float factor,
                           const float (&sums)[size]) {
  constexpr int kEights = size / 4;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kEights; j += 4) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = 0;
      if (j + i < kEights) {
        const float* pair = &sums[4 * (j + i) + 2 * half];
        words[i] = pack(pair[0] * factor, pair[1] * factor, T());
      }
    }
    const uint4 part = quad_transpose(words[0], words[1], words[2], words[3]);
    const int column = 8 * (j + lane % 4);
    if (inside && column < dim) *reinterpret_cast<uint4*>(row + column) = part;
  }
}

}  // namespace tessera::cuda::tile
