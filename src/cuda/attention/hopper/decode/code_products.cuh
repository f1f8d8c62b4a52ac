// The two products of a step over keys and values of 8 bits in the decode kernel for Hopper, for
// tiles of 8 query rows:
//
//   scores = Q K^T      [8 rows, 32 keys]      code_queries.cuh
//   weights                                    code_state.cuh
//   sums += V^T P^T     [dim, 8 rows]          code_values.cuh; rows are columns here, because a
//                                              right operand of mma.sync has 8 columns, a left one
//                                              16 rows
//
// So the 16 rows of a left operand are in use where at most 8 query rows exist, as in most calls:
// by two digits of int8 queries, and by 16 columns of the values. Elements have the orders of
// cuda.split.codes (split_codes.cuh), and are read where the copy engine wrote them. Rows of 128
// bytes are swizzled, so that lanes served together read different banks.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/code_queries.cuh"
#include "cuda/attention/hopper/decode/code_state.cuh"
#include "cuda/attention/hopper/decode/code_values.cuh"
#include "cuda/attention/hopper/decode/products.cuh"
#include "cuda/attention/portable/code_pairs.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_codes_block.cuh"

namespace tessera::cuda::hopper_decode {

inline constexpr int kTileRows = 8;

template <typename T, int dim_, DType stored, int tiles>
struct CodeProducts {
  static constexpr int dim = dim_;
  using Element = T;
  using BlockOf = Block<dim, decode_heads(dim), true, tiles * kTileRows>;
  using Rows = typename BlockOf::Rows;
  using Values = split::ValueCodes<dim>;
  using State = CodeState<dim, tiles>;

  int first;  // byte of the head in a row
  CodeQueries<T, dim, stored, tiles> queries;

  __device__ explicit CodeProducts(int head) : first(head * dim) {}
  __device__ static int first_row(int, int part) { return part * kWarpKeys * Rows::kRowBytes; }

  __device__ void load(const unsigned char* rows) { queries.load(rows); }

  // Takes in the keys of a step. hide(scores) hides those that a row does not see. Everything is
  // read as early as registers allow, because a multiprocessor has few warps to hide the waiting.
  template <typename Hide>
  __device__ void take(float q_factor, const StepPlace& at, Hide hide, State& state) const {
    KeyWords<dim> keys;
    keys.template read<Rows>(at.keys, first);
    KeyNumbers scales;
    read_scales(at.key_scales, scales);
    CodeScores<tiles> scores;
    queries.multiply(keys, scales, scores);
    ValueWords<dim> values[kWarpKeys / 16];
    const auto read_values = [&](int u) {
      values[u].template read<Rows>(at.values + 16 * u * Rows::kRowBytes, first);
    };
    if constexpr (tiles == 1) read_values(0), read_values(1);
    read_scales(at.value_scales, scales);
    hide(scores);
    float factor[tiles];
#pragma unroll
    for (int m = 0; m < tiles; ++m) factor[m] = q_factor * queries.unit[m];
    std::uint32_t weights[tiles][kEights];
    state.weigh(factor, scores, scales, weights);
#pragma unroll
    for (int u = 0; u < kWarpKeys / 16; ++u) {
      if constexpr (tiles > 1) read_values(u);
      values[u].template add<stored>(u, weights, state.sums);
    }
  }
  template <typename Loop>
  __device__ static void hide_keys(const QueryRows& rows, const Loop& loop, int k0,
                                   CodeScores<tiles>& scores) {
    hide<tiles>(rows, loop, k0, scores);
  }
  // Stores the warp's results to the block's shared memory.
  __device__ static void share(const State& state, int rows, const BlockOf& block) {
    const int warp = split::warp_of_block(), g = lane_of_warp() / 4, t = lane_of_warp() % 4;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      const int row = kTileRows * m + g;
      const float sum = tile::quad_sum(state.weights[m]);
      if (row < rows && t == 0) {
        block.largest[warp][row] = state.origin[m];
        block.sum[warp][row] = sum;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int of_sums = kTileRows * m + 2 * t + i;
        if (of_sums < rows) write(state.sums[m], i, g, block.out(warp, of_sums));
      }
    }
  }
  // Sets the head's values of row `row` to zero.
  __device__ void clear(unsigned char* values, int row) const {
#pragma unroll 1
    for (int chunk = 0; chunk < dim / 16; ++chunk) {
      *reinterpret_cast<uint4*>(values + Rows::at(row, first + 16 * chunk)) =
          make_uint4(0, 0, 0, 0);
    }
  }

 private:
  __device__ static void read_scales(const float* from, KeyNumbers& scales) {
    const float2* mine = reinterpret_cast<const float2*>(from) + lane_of_warp() % 4;
#pragma unroll
    for (int n = 0; n < kEights; ++n) {
      const float2 pair = mine[4 * n];
      scales[n][0] = pair.x, scales[n][1] = pair.y;
    }
  }
  // Writes a row of sums.
  __device__ static void write(const float (&sums)[dim / 16][4], int i, int g, float* out) {
    constexpr float kFactor = 1.f / CodePairs<Half, stored>::kUnit;
    const auto sum = [&](int column) { return kFactor * sums[column / 2][column % 2 * 2 + i]; };
#pragma unroll
    for (int c = 0; c < Values::kBytes; c += 4) {
      *reinterpret_cast<float4*>(out + Values::kBytes * g + c) =
          make_float4(sum(c), sum(c + 1), sum(c + 2), sum(c + 3));
    }
    if constexpr (Values::kRest > 0) {
      static_assert(Values::kRest == 2);
      *reinterpret_cast<float2*>(out + Values::kWhole + 2 * g) =
          make_float2(sum(Values::kBytes), sum(Values::kBytes + 1));
    }
  }
};

}  // namespace tessera::cuda::hopper_decode
