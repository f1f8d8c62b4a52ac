// Shared by steps 2 to 4: tiles of 64 x 64 numbers in shared memory, and their products. A thread
// keeps 4 x 8 sums in registers.
//
//              columns x, x + 8, x + 16, ... x + 56
//             +-------------------------+
//   rows      |  #   #   #   #   ...    |    thread t: y = 4 (t / 8), x = t % 8
//   y .. y+3  |  #   #   #   #   ...    |
//             +-------------------------+
//
// For each step along the depth a thread reads 4 + 8 numbers and does 32 multiply-adds with them.
#pragma once

#include "learn.h"

namespace tessera::learn {

// One more column than there are numbers: one row down is 65 words further, in another bank.
using FloatTile = float[kTile][kTile + 1];

__device__ inline int my_row() { return static_cast<int>(threadIdx.x) / 8 * 4; }
__device__ inline int my_column() { return static_cast<int>(threadIdx.x) % 8; }

// Rows first .. first + 63 of one head, as f32; zeros beyond the end.
__device__ inline void load(FloatTile& to, const __half* head, int first, int tokens) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDim; i += kThreads) {
    const int row = i / kDim, d = i % kDim;
    to[row][d] = first + row < tokens ? __half2float(head[(first + row) * kDim + d]) : 0.f;
  }
}

// sums += a b^T
__device__ inline void multiply_transposed(float (&sums)[4][8], const FloatTile& a,
                                           const FloatTile& b) {
#pragma unroll 4
  for (int i = 0; i < kTile; ++i) {
    float left[4], right[8];
    for (int r = 0; r < 4; ++r) left[r] = a[my_row() + r][i];
    for (int c = 0; c < 8; ++c) right[c] = b[my_column() + 8 * c][i];
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 8; ++c) sums[r][c] += left[r] * right[c];
    }
  }
}

// sums += a b
__device__ inline void multiply(float (&sums)[4][8], const FloatTile& a, const FloatTile& b) {
#pragma unroll 4
  for (int i = 0; i < kTile; ++i) {
    float left[4], right[8];
    for (int r = 0; r < 4; ++r) left[r] = a[my_row() + r][i];
    for (int c = 0; c < 8; ++c) right[c] = b[i][my_column() + 8 * c];
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 8; ++c) sums[r][c] += left[r] * right[c];
    }
  }
}

// The maximum over the eight threads that share a row.
__device__ inline float row_max(float x) {
  for (int other = 4; other > 0; other /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, other));
  }
  return x;
}
__device__ inline float row_sum(float x) {
  for (int other = 4; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
  return x;
}

}  // namespace tessera::learn
