// The two products of a step in the decode kernel for Hopper, by mma.sync.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/share.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_merge.cuh"

namespace tessera::cuda::hopper_decode {

// Where a warp's keys of a step lie in shared memory; the scales of codes.
struct StepPlace {
  const unsigned char *keys, *values;
  const float *key_scales, *value_scales;
};

using StepScores = Scores<1, kWarpKeys>;

template <typename T, int dim_, int heads>
struct Products {
  static constexpr int dim = dim_;
  using Element = T;
  using Rows = KeyRows<dim>;
  using BlockOf = Block<dim, heads>;
  using State = WarpRows<1, dim>;

  std::uint32_t queries[dim / 16][4];

  __device__ explicit Products(int) {}
  // Where the rows of one of the block's heads, and of a part of a step, begin in a stage.
  __device__ static int first_row(int head, int) { return head * Rows::kBytes; }

  __device__ void load(const unsigned char* rows) {
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      load_matrices(queries[k],
                    rows + PaddedRows<dim>::at(lane_of_warp() % 16, 2 * k + lane_of_warp() / 16));
    }
  }
  // Takes in the keys of a step. hide(scores) hides those that a row does not see.
  template <typename Hide>
  __device__ void take(float q_factor, const StepPlace& at, Hide hide, State& state) const {
    StepScores scores;
    multiply(at.keys, scores);
    hide(scores);
    update(q_factor, scores, state);
    add(scores, at.values, state.out[0]);
  }
  __device__ static void hide_keys(const QueryRows& rows, const LoopAroundHole& loop, int k0,
                                   StepScores& scores) {
    hide(rows, 0, loop, k0, scores);
  }
  // Stores the warp's results to the block's shared memory.
  __device__ static void share(const State& state, int rows, const BlockOf& block) {
    split::share(state, rows, block, [&](int side, float* out) { write(state.out[0], side, out); });
  }
  // Sets the values of row `row` to zero.
  __device__ static void clear(unsigned char* values, int row) {
#pragma unroll 1
    for (int chunk = 0; chunk < dim / 8; ++chunk) {
      *reinterpret_cast<uint4*>(values + Rows::at(row, chunk)) = make_uint4(0, 0, 0, 0);
    }
  }

 private:
  // scores = Q K^T
  __device__ void multiply(const unsigned char* keys, StepScores& scores) const {
    const int lane = lane_of_warp();
    for_each_score(scores, [](float& s) { s = 0.f; });
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
#pragma unroll
      for (int u = 0; u < kWarpKeys / 16; ++u) {
        std::uint32_t b[4];
        load_matrices(b, keys + Rows::at(16 * u + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        mma_16x8x16(scores[0][2 * u], queries[k], {b[0], b[1]}, T());
        mma_16x8x16(scores[0][2 * u + 1], queries[k], {b[2], b[3]}, T());
      }
    }
  }
  // sums += P V
  __device__ static void add(const StepScores& weights, const unsigned char* values,
                             float (&sums)[dim / 8][4]) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int u = 0; u < kWarpKeys / 16; ++u) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[0][2 * u + i / 2][i % 2 * 2];
        a[i] = pack(pair[0], pair[1], T());
      }
#pragma unroll
      for (int n = 0; n < dim / 8; n += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, values + Rows::at(16 * u + lane % 16, n + lane / 16));
        mma_16x8x16(sums[n], a, {b[0], b[1]}, T());
        mma_16x8x16(sums[n + 1], a, {b[2], b[3]}, T());
      }
    }
  }
  // Writes a side of the sums to a row of results.
  __device__ static void write(const float (&sums)[dim / 8][4], int side, float* out) {
    const int column = 2 * (lane_of_warp() % 4);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n + column) =
          make_float2(sums[n][2 * side], sums[n][2 * side + 1]);
    }
  }
};

}  // namespace tessera::cuda::hopper_decode
