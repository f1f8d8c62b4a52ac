// Attention in the registers of one warp, in the layout of mma.sync: scores, the running softmax,
// and the sums of weighted values.
//
//                 `keys` keys
//               +------------+      In each piece of 16 x 8, a lane has columns 2t and 2t + 1
//   16 x tiles  |     S      |      (t = lane % 4) of rows lane / 4 (side 0) and lane / 4 + 8
//      rows     +------------+      (side 1): elements 2 * side and 2 * side + 1.
//
// The weights P enter the product with V in the same layout as the scores leave the product with K.
#pragma once

#include "core/philox.h"
#include "cuda/attention/call.h"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/padded_rows.cuh"
#include "cuda/tile/quad.cuh"

namespace tessera::cuda {

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }

// Some rows of a head group, as queries and heads.
struct QueryRows {
  const AttentionCall& call;
  const SmallSequence& sequence;
  int kv_head, begin, size;

  __device__ int query(int r) const { return (begin + r) / static_cast<int>(call.group); }
  __device__ std::int64_t head(int r) const {
    return kv_head * call.group + (begin + r) % static_cast<int>(call.group);
  }
};

template <int tiles, int keys>
using Scores = float[tiles][keys / 8][4];

// The state that a warp carries from key to key.
template <int tiles, int dim>
struct WarpRows {
  float out[tiles][dim / 8][4];
  float largest[tiles][2],
      sum[tiles][2];  // of this lane's columns only

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int n = 0; n < dim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] = 0.f;
      }
      largest[m][0] = largest[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0.f;
    }
  }
  // The row of the warp that this lane holds.
  __device__ static int row(int m, int side) { return 16 * m + 8 * side + lane_of_warp() / 4; }
};

// scores = Q K^T, for the rows in shared memory that start at `queries` and at `keys`.
template <typename T, int dim, int tiles, int n_keys>
__device__ void multiply_keys(const unsigned char* queries, const unsigned char* keys,
                              float (&scores)[tiles][n_keys][4]) {
  using Rows = PaddedRows<dim>;
  const int lane = lane_of_warp();
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int n = 0; n < n_keys; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.f;
    }
  }
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) {
    std::uint32_t a[tiles][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      load_matrices(a[m], queries + Rows::at(16 * m + lane % 16, 2 * k + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < n_keys; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, keys + Rows::at(8 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        mma_16x8x16(scores[m][n], a[m], {b[0], b[1]}, T());
        mma_16x8x16(scores[m][n + 1], a[m], {b[2], b[3]}, T());
      }
    }
  }
}

// sums += weights rows: [16 tiles, dim] from [16 tiles, 8 eights] and [8 eights, dim].
template <typename T, int dim, int tiles, int eights>
__device__ void add_product(float (&sums)[tiles][dim / 8][4],
                            const float (&weights)[tiles][eights][4], const unsigned char* rows) {
  using Rows = PaddedRows<dim>;
  const int lane = lane_of_warp();
#pragma unroll
  for (int k = 0; k < eights / 2; ++k) {
    std::uint32_t a[tiles][4];
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[m][2 * k + i / 2][i % 2 * 2];
        a[m][i] = pack(pair[0], pair[1], T());
      }
    }
#pragma unroll
    for (int n = 0; n < dim / 8; n += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(b, rows + Rows::at(16 * k + lane % 16, n + lane / 16));
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        mma_16x8x16(sums[m][n], a[m], {b[0], b[1]}, T());
        mma_16x8x16(sums[m][n + 1], a[m], {b[2], b[3]}, T());
      }
    }
  }
}

// out += P V
template <typename T, int dim, int tiles, int n_keys>
__device__ void multiply_values(const float (&weights)[tiles][n_keys][4],
                                const unsigned char* values, WarpRows<tiles, dim>& rows) {
  add_product<T, dim>(rows.out, weights, values);
}

// Calls fn(score) for all scores of the lane.
template <int tiles, int n_keys, typename F>
__device__ void for_each_score(float (&scores)[tiles][n_keys][4], F fn) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int n = 0; n < n_keys; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fn(scores[m][n][i]);
    }
  }
}

// Multiplies column c of scores or weights, which is key c of the tile, by factor_of(c).
template <int tiles, int n_keys, typename FactorOf>
__device__ void scale_columns(float (&scores)[tiles][n_keys][4], FactorOf factor_of) {
#pragma unroll
  for (int n = 0; n < n_keys; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = factor_of(8 * n + 2 * (lane_of_warp() % 4) + i);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        scores[m][n][i] *= factor;
        scores[m][n][2 + i] *= factor;
      }
    }
  }
}

// Turns a score into an exponent of 2: positive_factor * bent(score).
struct ScoreScale {
  const AttentionCall& call;

  __device__ float positive_factor() const { return call.capped ? 1.f : fabsf(call.q_factor); }
  template <int tiles, int n_keys>
  __device__ void bend(float (&scores)[tiles][n_keys][4]) const {
    if (call.capped) {
      for_each_score(scores, [&](float& s) { s = call.score_factor * tanhf(call.q_factor * s); });
    } else if (call.q_factor < 0.f) {
      for_each_score(scores, [](float& s) { s = -s; });
    }
  }
};

// Sets the scores of keys from k0 on that a row does not see to -inf. The warp's rows are the rows
// of `rows` from `first` on. Loop has a seen() like KeyTileLoop's.
template <int tiles, int n_keys, typename Loop>
__device__ void hide(const QueryRows& rows, int first, const Loop& loop, int k0,
                     float (&scores)[tiles][n_keys][4]) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = first + 16 * m + 8 * side + lane_of_warp() / 4;
#pragma unroll
      for (int word = 0; word < (n_keys + 7) / 8; ++word) {
        const std::uint64_t seen =
            loop.seen(rows.query(row), k0 + word * kKeysOfWord) >> (2 * (lane_of_warp() % 4));
        const std::uint32_t parts[2] = {static_cast<std::uint32_t>(seen),
                                        static_cast<std::uint32_t>(seen >> 32)};
#pragma unroll
        for (int n = 8 * word; n < n_keys && n < 8 * word + 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const bool hidden = (parts[n / 4 % 2] >> (8 * (n % 4) + i) & 1u) == 0;
            if (hidden) scores[m][n][2 * side + i] = -INFINITY;
          }
        }
      }
    }
  }
}

// From scores to weights 2^(factor * score - largest), with factor > 0. Rescales earlier sums to
// the same largest score, unless no row of the warp has a new one: the factor would be 1.
template <int tiles, int n_keys, int dim>
__device__ void update(float factor, float (&scores)[tiles][n_keys][4],
                       WarpRows<tiles, dim>& rows) {
  float rescale[tiles][2];
  bool changed = false;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float largest = fmaxf(scores[m][0][2 * side], scores[m][0][2 * side + 1]);
#pragma unroll
      for (int n = 1; n < n_keys; ++n) {  // fmaxf ignores a NaN
        largest = fmaxf(largest, fmaxf(scores[m][n][2 * side], scores[m][n][2 * side + 1]));
      }
      const float before = rows.largest[m][side];
      largest = fmaxf(before, factor * tile::quad_max(largest));
      const float origin = largest == -INFINITY ? 0.f : largest;  // nothing seen: not inf - inf
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < n_keys; ++n) {
#pragma unroll
        for (int i = 2 * side; i < 2 * side + 2; ++i) {
          scores[m][n][i] = fast_exp2(fmaf(factor, scores[m][n][i], -origin));
          sum += scores[m][n][i];
        }
      }
      changed = changed || largest != before;
      rescale[m][side] = fast_exp2(before - origin);
      rows.largest[m][side] = largest;
      rows.sum[m][side] = rows.sum[m][side] * rescale[m][side] + sum;
    }
  }
  if (__ballot_sync(0xffffffffu, changed) == 0) return;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.out[m][n][i] *= rescale[m][i / 2];
    }
  }
}

// ---- the same with less waiting: weights are computed while the products with the values run.

// Finds the largest scores and the origins that are subtracted from exponents. An origin is the
// largest score of the row, or an earlier one that has been exceeded by less than 2^8. In the
// latter case earlier sums need no rescaling: weights stay below 2^8, which f16 holds and sums in
// f32 tolerate. All rows of a warp change at the same time.
template <int tiles, int n_keys, int dim>
__device__ void find_origins(float factor, const float (&scores)[tiles][n_keys][4],
                             WarpRows<tiles, dim>& rows, float (&origin)[tiles][2]) {
  constexpr float kSlack = 8.f;
  float now[tiles][2], rescale[tiles][2];
  bool grown = false;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const auto pair = [&](int n) {  // fmaxf ignores a NaN
        return fmaxf(scores[m][n][2 * side], scores[m][n][2 * side + 1]);
      };
      float most[2] = {pair(0), pair(1)};  // two chains, because one would wait for its own results
#pragma unroll
      for (int n = 2; n < n_keys; ++n) most[n % 2] = fmaxf(most[n % 2], pair(n));
      const float before = rows.largest[m][side];
      now[m][side] = fmaxf(before, factor * tile::quad_max(fmaxf(most[0], most[1])));
      grown = grown || now[m][side] > before + kSlack;
    }
  }
  const bool change = __ballot_sync(0xffffffffu, grown) != 0;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float before = rows.largest[m][side];
      if (change) rows.largest[m][side] = now[m][side];
      // Nothing seen yet: not inf - inf.
      origin[m][side] = rows.largest[m][side] == -INFINITY ? 0.f : rows.largest[m][side];
      rescale[m][side] = fast_exp2(before - origin[m][side]);
    }
  }
  if (!change) return;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    rows.sum[m][0] *= rescale[m][0];
    rows.sum[m][1] *= rescale[m][1];
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.out[m][n][i] *= rescale[m][i / 2];
    }
  }
}

// update() and multiply_values() in one, for the scores of a tile. While the values of 16 keys are
// added, the weights of the next 16 are computed, a piece of 16 x 8 at a time. So neither the
// tensor cores nor the unit that computes 2^x idles while a warp waits for the other. load(k, n, b)
// reads values of keys from 16 k on, columns from 16 n on.
template <typename T, int tiles, int n_keys, int dim, typename LoadValues>
__device__ void take_in(float factor, const float (&scores)[tiles][n_keys][4],
                        WarpRows<tiles, dim>& rows, LoadValues load) {
  constexpr int kSteps = dim / 16, kKeySteps = n_keys / 2;
  constexpr int kAhead = 2 * tiles, kPieces = kAhead * kKeySteps;  // kAhead: pieces of 16 keys
  static_assert(kSteps >= kAhead);
  float origin[tiles][2];
  find_origins(factor, scores, rows, origin);
  std::uint32_t weights[kKeySteps][tiles][4];
  const auto weigh = [&](int piece) {
    const int k = piece / kAhead, m = piece / 2 % tiles, eight = piece % 2, n = 2 * k + eight;
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = fast_exp2(fmaf(scores[m][n][i], factor, -origin[m][i / 2]));
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      rows.sum[m][side] += w[2 * side] + w[2 * side + 1];
      weights[k][m][2 * eight + side] = pack(w[2 * side], w[2 * side + 1], T());
    }
  };
  int piece = 0;
#pragma unroll
  for (; piece < kAhead; ++piece) weigh(piece);
#pragma unroll
  for (int unit = 0; unit < kSteps * kKeySteps; ++unit) {
    const int k = unit / kSteps, n = unit % kSteps;
    std::uint32_t b[4];
    load(k, n, b);
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      mma_16x8x16(rows.out[m][2 * n], weights[k][m], {b[0], b[1]}, T());
      mma_16x8x16(rows.out[m][2 * n + 1], weights[k][m], {b[2], b[3]}, T());
    }
    if (piece < kPieces && unit % (kSteps / kAhead) == 0) weigh(piece++);
  }
}

// Dropout: weights become 0 or are divided by 1 - p. Rows are as for hide(). The random words are
// drawn in a loop that is not unrolled, because there are many; each leaves one bit.
template <int tiles, int n_keys>
__device__ void drop(const QueryRows& rows, int first, int k0, float (&weights)[tiles][n_keys][4]) {
  const AttentionCall& call = rows.call;
  const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = first + 16 * m + 8 * side + lane_of_warp() / 4;
      const int pair = 2 * (lane_of_warp() % 4);
      std::uint32_t kept = 0;
#pragma unroll 1
      for (int n = 0; n < n_keys; ++n) {
        const PhiloxWords words =
            dropout_words(call.seed, u32(rows.sequence.index), u32(rows.head(row)),
                          u32(rows.query(row)), u32(k0 + 8 * n + pair));
        const bool upper = pair % 4 != 0;  // these two keys are the last of four
        const std::uint32_t low = upper ? words[2] : words[0], high = upper ? words[3] : words[1];
        kept |= (low >= call.dropout_threshold ? 1u : 0u) << (2 * n);
        kept |= (high >= call.dropout_threshold ? 2u : 0u) << (2 * n);
      }
#pragma unroll
      for (int n = 0; n < n_keys; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          weights[m][n][2 * side + i] *= (kept >> (2 * n + i) & 1u) != 0 ? call.kept_factor : 0.f;
        }
      }
    }
  }
}

}  // namespace tessera::cuda
