// The product of values of 8 bits with the weights of tiles of 8 query rows, transposed:
//
//                          8 rows
//                        +--------+      Lane 4 g + t has values 2t, 2t + 1, 2t + 8 and 2t + 9 of
//                        |   P^T  |      16, and of each the bytes that ValueCodes names. Byte 2 i
//         16 values      +--------+      is column g of piece i of the sums, byte 2 i + 1 column
//       +-----------+    +--------+      g + 8.
//  dim  |    V^T    |    |  sums  |
//       +-----------+    +--------+
//
// Codes become f16, and two values of a byte form a pair. So bytes of two values are put side by
// side before they are decoded.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/decode/code_queries.cuh"
#include "cuda/attention/portable/code_pairs.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_codes_block.cuh"
#include "cuda/tile/mma.cuh"

namespace tessera::cuda::hopper_decode {

// The lane's bytes of 16 values: of values 2t, 2t + 1, 2t + 8 and 2t + 9, in the order of
// ValueCodes.
template <int dim>
struct ValueWords {
  using Values = split::ValueCodes<dim>;
  static constexpr int kWhole = Values::kBytes / 4;                    // words
  static constexpr int kWords = kWhole + (Values::kRest > 0 ? 1 : 0);  // the last: kRest bytes
  std::uint32_t of[4][kWords];

  // `rows`: the codes of the values, which begin at byte `first` of each row.
  template <typename Rows>
  __device__ void read(const unsigned char* rows, int first) {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto read = [&](auto bytes, int byte, int word) {
        const unsigned char* const from = rows + Rows::at(2 * t + i, first + byte);
        split::read_words<bytes()>(from, of[i] + word);
        split::read_words<bytes()>(from + 8 * Rows::kRowBytes, of[2 + i] + word);
      };
      read(std::integral_constant<int, Values::kBytes>(), Values::kBytes * g, 0);
      if constexpr (Values::kRest > 0) {
        read(std::integral_constant<int, Values::kRest>(), Values::kWhole + Values::kRest * g,
             kWhole);
      }
    }
  }
  // sums += V^T P^T of these 16 values, which are values 16 u to 16 u + 15 of the step.
  template <DType stored, int tiles>
  __device__ void add(int u, const std::uint32_t (&weights)[tiles][kEights],
                      float (&sums)[tiles][dim / 16][4]) const {
    using Pairs = CodePairs<Half, stored>;
    const auto add_piece = [&](int piece, std::uint32_t low_values, std::uint32_t high_values) {
      std::uint32_t low[2], high[2];
      Pairs::decode(low_values, low);
      Pairs::decode(high_values, high);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        mma_16x8x16(sums[m][piece], {low[0], low[1], high[0], high[1]},
                    {weights[m][2 * u], weights[m][2 * u + 1]}, Half());
      }
    };
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      add_piece(2 * w, Pairs::join_low(of[0][w], of[1][w]), Pairs::join_low(of[2][w], of[3][w]));
      if (w == kWhole) break;  // the rest is two bytes
      add_piece(2 * w + 1, Pairs::join_high(of[0][w], of[1][w]),
                Pairs::join_high(of[2][w], of[3][w]));
    }
  }
};

}  // namespace tessera::cuda::hopper_decode
