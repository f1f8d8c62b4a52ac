// The softmax of a warpgroup's 64 rows over a tile of keys, on the fragment that the tensor cores
// leave in registers (tile/wgmma.cuh): a lane has elements of two rows, which the four lanes of a
// quad share.
#pragma once

#include <cstdint>

#include "cuda/tile/exp2.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::hopper {

// The state that a lane carries from key to key for its two rows. `sum` covers the lane's own
// elements only.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};

  // Turns scores into weights. The caller multiplies sums over earlier weights by `rescale`.
  template <int n>
  __device__ void weigh(float (&s)[n], float exponent_scale, float (&rescale)[2]) {
    float most[4] = {s[0], s[1], s[2], s[3]};  // four chains: one would wait for itself
#pragma unroll
    for (int j = 4; j < n; ++j) most[j % 4] = fmaxf(most[j % 4], s[j]);
    float origin[2], sums[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float now = fmaxf(largest[r], tile::quad_max(fmaxf(most[2 * r], most[2 * r + 1])));
      // Nothing seen yet: not inf - inf.
      origin[r] = now == -INFINITY ? 0.f : now * exponent_scale;
      rescale[r] = fast_exp2(largest[r] * exponent_scale - origin[r]);
      largest[r] = now;
      sums[2 * r] = sum[r] * rescale[r];
      sums[2 * r + 1] = 0.f;
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      s[j] = fast_exp2(fmaf(s[j], exponent_scale, -origin[j / 2 % 2]));
      sums[j % 4] += s[j];
    }
    sum[0] = sums[0] + sums[1];
    sum[1] = sums[2] + sums[3];
  }
};

// Converts weights to the left operand of the next product.
template <typename T, int steps>
__device__ void to_operand(const float (&s)[8 * steps], std::uint32_t (&p)[steps][4]) {
#pragma unroll
  for (int i = 0; i < 4 * steps; ++i) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1], T());
}

}  // namespace tessera::cuda::hopper
