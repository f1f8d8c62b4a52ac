// The running softmax of a warp over keys and values of 8 bits, and its sums of values. Weights
// leave the product with the keys in the layout in which they enter the product with the values, as
// its right operand:
//
//              8 keys                        8 rows                        8 rows
//           +----------+       16 columns  +--------+      16 columns    +--------+
//   8 rows  |  scores  |       of out      |  sums  |  +=  of the values |        |  x  weights
//           +----------+                   +--------+                    +--------+
//
//   Lane 4 g + t has row g of scores and weights, keys 2t and 2t + 1; of sums it has columns g and
//   g + 8, rows 2t and 2t + 1.
//
// Weights are f16 for all dtypes: values of 8 bits are exact in it, and take the fewest
// instructions. A weight is 2^(score - origin) times the scale of its value. The origin of a row is
// such that a score 2^8 times as large as any before, with a scale 16 times as large, still gives
// no more than 2^15. Sums are rescaled only when a score or a scale exceeds that.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/attention/hopper/decode/code_queries.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda::hopper_decode {

template <int dim, int tiles>
struct CodeState {
  float sums[tiles][dim / 16][4];  // [columns, rows], columns in the order of ValueCodes
  // Of row 8 m + g: the weights so far, of this lane's keys only, and their origin.
  float weights[tiles], origin[tiles];
  float limit[tiles];  // the largest exponent that the origin allows for
  float scale_limit;   // and the largest scale

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int piece = 0; piece < dim / 16; ++piece) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][piece][i] = 0.f;
      }
      origin[m] = limit[m] = -INFINITY;
      weights[m] = 0.f;
    }
    scale_limit = 1e-28f;  // so its logarithm exists
  }
  // From scores to weights 2^(factor * score - origin), with factor > 0. They leave as pairs in the
  // layout of the product with the values, times the values' scales.
  __device__ void weigh(const float (&factor)[tiles], const CodeScores<tiles>& scores,
                        const KeyNumbers& scales, std::uint32_t (&pairs)[tiles][kEights]) {
    float most[tiles];
    const float most_scale = largest_of(scales);
    bool grown = most_scale > scale_limit;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      most[m] = factor[m] * largest_of(scores[m]);
      grown = grown || most[m] > limit[m];
    }
    if (__ballot_sync(0xffffffffu, grown) != 0) raise(most, most_scale);
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      const float from = finite_origin(m);
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        float w[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) w[i] = fast_exp2(fmaf(factor[m], scores[m][n][i], -from));
        weights[m] += w[0] + w[1];
        pairs[m][n] = pack(w[0] * scales[n][0], w[1] * scales[n][1], Half());
      }
    }
  }

 private:
  static constexpr float kSlack = 8.f, kScaleSlack = 16.f, kMost = 15.f;  // exponent, factor

  __device__ static float largest_of(const KeyNumbers& numbers) {
    float most = fmaxf(numbers[0][0], numbers[0][1]);
#pragma unroll
    for (int n = 1; n < kEights; ++n) {  // fmaxf ignores a NaN
      most = fmaxf(most, fmaxf(numbers[n][0], numbers[n][1]));
    }
    return most;
  }
  // Nothing seen yet: not inf - inf.
  __device__ float finite_origin(int m) const { return origin[m] == -INFINITY ? 0.f : origin[m]; }

  // Moves the origins above the largest score and scale of the warp.
  __device__ void raise(const float (&most)[tiles], float most_scale) {
    scale_limit = fmaxf(scale_limit, kScaleSlack * tile::quad_max(most_scale));
    const float above = log2f(scale_limit) - kMost;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      const float before = origin[m];
      limit[m] = fmaxf(limit[m], tile::quad_max(most[m]) + kSlack);
      origin[m] = limit[m] + above;
      const float rescale = fast_exp2(before - finite_origin(m));
      weights[m] *= rescale;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float of_row = __shfl_sync(0xffffffffu, rescale, 8 * (lane_of_warp() % 4) + 4 * i);
#pragma unroll
        for (int piece = 0; piece < dim / 16; ++piece) {
          sums[m][piece][i] *= of_row;
          sums[m][piece][2 + i] *= of_row;
        }
      }
    }
  }
};

// Sets the scores of slots from k0 on that a row does not see to -inf. Loop has a seen() like
// KeyTileLoop's.
template <int tiles, typename Loop>
__device__ void hide(const QueryRows& rows, const Loop& loop, int k0, CodeScores<tiles>& scores) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    const std::uint64_t of_row = loop.seen(rows.query(8 * m + lane / 4), k0);
    const auto seen = static_cast<std::uint32_t>(of_row) >> (2 * (lane % 4));
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if ((seen >> (8 * n + i) & 1u) == 0) scores[m][n][i] = -INFINITY;
      }
    }
  }
}

}  // namespace tessera::cuda::hopper_decode
