// A warp of the portable kernel for the gradients of attention: the products of its rows with a
// tile, and the sums in its registers.
#pragma once

#include <cstdint>

#include "cuda/attention/backward/portable_tile.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda::backward {

// A warp's rows: 16 * own_tiles(dim) of the block's.
template <typename T_, int dim, Side side, bool rich>
struct Warp {
  using T = T_;
  static constexpr int kTiles = own_tiles(dim);
  float first_sum[kTiles][dim / 8][4] = {};                            // dQ, or dK
  float second_sum[side == Side::keys ? kTiles : 1][dim / 8][4] = {};  // dV
  float exponent[kTiles][2], delta[kTiles][2];                         // of own queries

  // The row of the block that the lane has.
  __device__ static int row(int m, int half) {
    return 16 * (static_cast<int>(threadIdx.x) / 32 * kTiles + m) + 8 * half + lane_of_warp() / 4;
  }

  // Computes P' and dS from the two products. `checked`: the tile has bits.
  template <bool checked>
  __device__ void weigh(const AttentionCall& call, const Shared<dim>& shared, int place,
                        Scores<kTiles, kOther>& s, Scores<kTiles, kOther>& dp) const {
    constexpr int kWords = Shared<dim>::kOwn / 32;
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int own = row(m, i / 2), other = 8 * n + 2 * (lane_of_warp() % 4) + i % 2;
          const bool of_query = side == Side::queries;
          const float origin = of_query ? exponent[m][i / 2] : shared.exponent[place][other];
          const float mean = of_query ? delta[m][i / 2] : shared.delta[place][other];
          float& weight = s[m][n][i];
          float& gradient = dp[m][n][i];
          float slope = 1.f;
          if (rich && call.capped) {
            const float tanh = tanhf(call.q_factor * weight);
            weight = fast_exp2(fmaf(call.score_factor, tanh, -origin));
            slope = 1.f - tanh * tanh;
          } else {
            weight = fast_exp2(fmaf(call.q_factor, weight, -origin));
          }
          if constexpr (checked) {
            const int word = of_query ? own : other * kWords + own / 32;
            const int bit = of_query ? other : own % 32;
            float keep = 1.f;
            if (rich && call.dropping) {
              keep = (shared.kept[word] >> bit & 1u) != 0 ? call.kept_factor : 0.f;
            }
            const bool seen = (shared.seen[word] >> bit & 1u) != 0;
            gradient = seen ? weight * (keep * gradient - mean) * slope : 0.f;
            weight = seen ? weight * keep : 0.f;
          } else {
            gradient = weight * (gradient - mean) * slope;
          }
        }
      }
    }
  }

  __device__ void visit(const AttentionCall& call, const Shared<dim>& shared, int place,
                        bool checked) {
    const int offset = static_cast<int>(threadIdx.x) / 32 * 16 * kTiles * Shared<dim>::kRowBytes;
    Scores<kTiles, kOther> s, dp;
    multiply_keys<T, dim>(shared.own[0] + offset, shared.other[place][0], s);
    multiply_keys<T, dim>(shared.own[1] + offset, shared.other[place][1], dp);
    if (checked) {
      weigh<true>(call, shared, place, s, dp);
    } else {
      weigh<false>(call, shared, place, s, dp);
    }
    if constexpr (side == Side::keys) {
      add_product<T, dim>(second_sum, s, shared.other[place][1]);
    }
    add_product<T, dim>(first_sum, dp, shared.other[place][0]);
  }

  // Stores row r of the block to row_of(r).
  template <typename RowOf>
  __device__ static void store(const float (&sums)[kTiles][dim / 8][4], float factor, int size,
                               int actual_dim, bool vectors, RowOf row_of) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row(m, half);
        if (r >= size) continue;
        T* to = row_of(r);
#pragma unroll
        for (int n = 0; n < dim / 8; ++n) {
          const int column = 8 * n + 2 * (lane_of_warp() % 4);
          const float low = factor * sums[m][n][2 * half];
          const float high = factor * sums[m][n][2 * half + 1];
          if (vectors) {
            if (column < actual_dim) {
              *reinterpret_cast<std::uint32_t*>(to + column) = pack(low, high, T());
            }
          } else {
            if (column < actual_dim) to[column] = from_f32<T>(low);
            if (column + 1 < actual_dim) to[column + 1] = from_f32<T>(high);
          }
        }
      }
    }
  }
};

}  // namespace tessera::cuda::backward
