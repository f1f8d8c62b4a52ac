// The two products of a step over codes of 8 bits in the decode kernel for Hopper. Elements have
// the orders of cuda.split.codes (portable/split_codes.cuh), and are read where the copy engine
// wrote them. Rows of 128 bytes are swizzled, so that lanes served together read different banks.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/block.cuh"
#include "cuda/attention/hopper/decode/products.cuh"
#include "cuda/attention/portable/code_pairs.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_codes_block.cuh"

namespace tessera::cuda::hopper_decode {

template <typename T, int dim_, DType stored>
struct CodeProducts {
  static constexpr int dim = dim_;
  using Element = T;
  using Pairs = CodePairs<T, stored>;
  using BlockOf = Block<dim, decode_heads(dim), true>;
  using Rows = typename BlockOf::Rows;
  using Keys = split::KeyCodes<dim>;
  using Values = split::ValueCodes<dim>;
  static constexpr float kScoreUnit = Pairs::kUnit;
  static constexpr float kGain = code_gain<T, stored>();  // of weights

  int first;  // byte of the head in a row
  std::uint32_t queries[dim / 16][4];

  __device__ explicit CodeProducts(int head) : first(head * dim) {}
  __device__ static int first_row(int, int part) { return part * kWarpKeys * Rows::kRowBytes; }

  __device__ void load(const unsigned char* rows) {
#pragma unroll
    for (int s = 0; s < dim / 16; ++s) split::load_in_code_order<dim, Pairs>(rows, s, queries[s]);
  }
  // scores = Q K^T, in units of the codes.
  __device__ void multiply(const unsigned char* keys, StepScores& scores) const {
    const int t = lane_of_warp() % 4;
    for_each_score(scores, [](float& s) { s = 0.f; });
#pragma unroll
    for (int v = 0; v < Keys::kVectors; ++v) {
      multiply_vectors<Keys::kBytes>(keys, Keys::vector(v, t), v * Keys::kBytes / 4, scores);
    }
    if constexpr (Keys::kWhole < dim) {
      multiply_vectors<4>(keys, Keys::kWhole + 4 * t, Keys::kWords - 1, scores);
    }
  }
  // Multiplies the scores or weights of each key by its scale.
  __device__ static void scale(const float* scales, float gain, StepScores& scores) {
    const float2* mine = reinterpret_cast<const float2*>(scales) + lane_of_warp() % 4;
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
      const float2 factors = mine[4 * n];
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        scores[0][n][2 * side] *= gain * factors.x;
        scores[0][n][2 * side + 1] *= gain * factors.y;
      }
    }
  }
  // sums += P V, columns in the order of ValueCodes.
  __device__ void add(const StepScores& weights, const unsigned char* values,
                      float (&sums)[dim / 8][4]) const {
    const int g = lane_of_warp() / 4;
#pragma unroll
    for (int u = 0; u < kWarpKeys / 16; ++u) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[0][2 * u + i / 2][i % 2 * 2];
        a[i] = pack(pair[0], pair[1], T());
      }
      const int row = 16 * u + lane_of_warp() % 4 * 2;
      add_columns<Values::kBytes>(values, row, first + Values::kBytes * g, a, sums);
      if constexpr (Values::kRest > 0) {
        add_columns<Values::kRest, Values::kBytes>(
            values, row, first + Values::kWhole + Values::kRest * g, a, sums);
      }
    }
  }
  // Writes a side of the sums to a row of results.
  __device__ static void write(const float (&sums)[dim / 8][4], int side, float* out) {
    constexpr float kFactor = 1.f / (kGain * Pairs::kUnit);
    const int column = 2 * (lane_of_warp() % 4);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out[Values::element(n, column + i)] = kFactor * sums[n][2 * side + i];
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
  // Multiplies the steps along the head dim, from step `s` on, that `bytes` bytes of each key hold;
  // the lane's bytes begin at `byte` of the head.
  template <int bytes>
  __device__ void multiply_vectors(const unsigned char* keys, int byte, int s,
                                   StepScores& scores) const {
    std::uint32_t words[kWarpKeys / 8][bytes / 4];
#pragma unroll
    for (int n = 0; n < kWarpKeys / 8; ++n) {
      split::read_words<bytes>(keys + Rows::at(8 * n + lane_of_warp() / 4, first + byte), words[n]);
    }
#pragma unroll
    for (int w = 0; w < bytes / 4; ++w) {
#pragma unroll
      for (int n = 0; n < kWarpKeys / 8; ++n) {
        std::uint32_t b[2];
        Pairs::decode(words[n][w], b);
        mma_16x8x16(scores[0][n], queries[s + w], b, T());
      }
    }
  }
  // Adds `bytes` bytes of each of the lane's values: columns of the pieces from `piece` on.
  template <int bytes, int piece = 0>
  __device__ static void add_columns(const unsigned char* values, int row, int byte,
                                     const std::uint32_t (&a)[4], float (&sums)[dim / 8][4]) {
    std::uint32_t words[4][(bytes + 3) / 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      split::read_words<bytes>(values + Rows::at(row + i / 2 * 8 + i % 2, byte), words[i]);
    }
    split::add_code_columns<T, Pairs, bytes, piece>(words, a, sums);
  }
};

}  // namespace tessera::cuda::hopper_decode
