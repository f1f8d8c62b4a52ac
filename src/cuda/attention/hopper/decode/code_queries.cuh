// The queries of a head as the left operand of the product with keys of 8 bits, and that product.
// Rows are scaled so that keys take few instructions:
//
//   int8    none. A row is rounded to integers of 24 bits, relative to its largest element, and cut
//           into three digits of 8 bits: q = unit * (2^16 high + 2^8 middle + low). Keys enter
//           mma.sync as they lie in memory. Sums are integers, so they are exact.
//   E4M3    one for two elements, the conversion to f16. A row is multiplied by a power of two and
//           rounded to f16, which loses nothing of a bf16 but elements below 2^-27 of the largest.
//
//          left operands        8 keys             A tile has 8 rows. Lane 4 g + t gets the scores
//        +----------------+    +--------+          of row g for keys 2t and 2t + 1, all digits.
//        | 8 rows: high   |    |        |
//        | 8 rows: middle | x  |        | head     E4M3: the left operand is both tiles, or one
//        +----------------+    +--------+ dim      tile and zeros.
//        | 8 rows: low    |
//        | 0, or the low digits of a second tile |
//        +----------------+
//             head dim
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/decode/call.h"
#include "cuda/attention/portable/code_pairs.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_codes_block.cuh"
#include "cuda/tile/mma_int8.cuh"
#include "cuda/tile/pack.cuh"

namespace tessera::cuda::hopper_decode {

inline constexpr int kEights = kWarpKeys / 8;

// Scores of 32 keys: of row 8 m + g with keys 8 n + 2t and 8 n + 2t + 1.
template <int tiles>
using CodeScores = float[tiles][kEights][2];
// A number for each of the lane's keys.
using KeyNumbers = float[kEights][2];

// The lane's words of its keys, in the order of KeyCodes. The last of an even number may be 0.
template <int dim>
struct KeyWords {
  using Keys = split::KeyCodes<dim>;
  static constexpr int kWords = Keys::kWords, kPairs = (kWords + 1) / 2;
  std::uint32_t of[kEights][2 * kPairs];

  // `rows`: the codes of 32 keys, which begin at byte `first` of each row.
  template <typename Rows>
  __device__ void read(const unsigned char* rows, int first) {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    const auto read = [&](auto bytes, int byte, int word) {
      const unsigned char* const from = rows + Rows::at(g, first + byte);
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        split::read_words<bytes()>(from + 8 * n * Rows::kRowBytes, of[n] + word);
      }
    };
#pragma unroll
    for (int v = 0; v < Keys::kVectors; ++v) {
      read(std::integral_constant<int, Keys::kBytes>(), Keys::vector(v, t), v * Keys::kBytes / 4);
    }
    if constexpr (Keys::kWhole < dim) {
      read(std::integral_constant<int, 4>(), Keys::kWhole + 4 * t, kWords - 1);
    }
    if constexpr (kWords % 2 != 0) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) of[n][kWords] = 0;
    }
  }
};

// A lane's part of a row of queries, in f32.
template <typename T, int dim>
struct QueryPart {
  static constexpr int kWords = KeyWords<dim>::kWords;
  float x[kWords][4];

  __device__ void read(const unsigned char* row) {
#pragma unroll
    for (int s = 0; s < kWords; ++s) {
      std::uint32_t pairs[2];
      split::read_words<8>(row + 2 * split::KeyCodes<dim>::element(s, lane_of_warp() % 4), pairs);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = unpacked(pairs[i], T());
        x[s][2 * i] = pair.x, x[s][2 * i + 1] = pair.y;
      }
    }
  }
  // The bits of the largest magnitude of the whole row. As integers, infinity and NaN are larger
  // than all numbers.
  __device__ std::uint32_t largest() const {
    std::uint32_t most = 0;
#pragma unroll
    for (int s = 0; s < kWords; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(fabsf(x[s][i])));
    }
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
    return max(most, __shfl_xor_sync(0xffffffffu, most, 2));
  }
};

template <typename T, int dim, DType stored, int tiles>
struct CodeQueries;

template <typename T, int dim, int tiles>
struct CodeQueries<T, dim, DType::i8, tiles> {
  static constexpr int kSteps = KeyWords<dim>::kPairs;  // 32 elements of the head dim each
  // Of a tile: high and middle digits. The last: low digits of all tiles.
  std::uint32_t digits[tiles + 1][kSteps][4];
  float unit[tiles];   // of the lane's rows
  float spoil[tiles];  // NaN if the row is not finite, else 0

  __device__ void load(const unsigned char* rows) {
    constexpr float kMost = 0x7f7f00;  // the largest with high digit 127, and some room
    constexpr float kLeast = 1e-30f;   // no unit is 0, or its inverse infinite
#pragma unroll
    for (int s = 0; s < kSteps; ++s) digits[tiles][s][1] = digits[tiles][s][3] = 0;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      QueryPart<T, dim> q;
      q.read(rows + (8 * m + lane_of_warp() / 4) * PaddedRows<dim>::kRowBytes);
      const std::uint32_t bits = q.largest();
      const bool finite = bits < 0x7f800000u;
      const float largest = fmaxf(finite ? __uint_as_float(bits) : 0.f, kLeast);
      const float inverse = kMost / largest;
      unit[m] = largest / kMost;
      spoil[m] = finite ? 0.f : __uint_as_float(0x7fffffffu);
#pragma unroll
      for (int s = 0; s < 2 * kSteps; ++s) {
        std::uint32_t of_word[3] = {};  // low, middle, high
        if (s < q.kWords) {
          std::uint32_t sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = bytes_of(finite ? q.x[s][i] * inverse : 0.f);
          const std::uint32_t first = __byte_perm(sums[0], sums[1], 0x5140);
          const std::uint32_t second = __byte_perm(sums[2], sums[3], 0x5140);
          of_word[0] = __byte_perm(first, second, 0x5410) ^ 0x80808080u;
          of_word[1] = __byte_perm(first, second, 0x7632) ^ 0x80808080u;
          of_word[2] = __byte_perm(__byte_perm(sums[0], sums[1], 0x0062),
                                   __byte_perm(sums[2], sums[3], 0x0062), 0x5410);
        }
        const int at = s % 2 * 2;
        digits[m][s / 2][at] = of_word[2];
        digits[m][s / 2][at + 1] = of_word[1];
        digits[tiles][s / 2][at + m] = of_word[0];
      }
    }
  }
  // scores = Q K^T times the scales of the keys, in units of the queries.
  __device__ void multiply(const KeyWords<dim>& keys, const KeyNumbers& scales,
                           CodeScores<tiles>& scores) const {
    int sums[tiles + 1][kEights][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
#pragma unroll
        for (int m = 0; m <= tiles; ++m) {
          mma_16x8x32(sums[m][n], digits[m][s], {keys.of[n][2 * s], keys.of[n][2 * s + 1]});
        }
      }
    }
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const auto high = static_cast<float>(sums[m][n][i]);
          const auto rest = static_cast<float>(256 * sums[m][n][2 + i] + sums[tiles][n][2 * m + i]);
          scores[m][n][i] = fmaf(fmaf(high, 65536.f, rest), scales[n][i], spoil[m]);
        }
      }
    }
  }

 private:
  // x, rounded to an integer, as the bytes low + 128, middle + 128 and high: so the upper digits
  // round to nearest.
  __device__ static std::uint32_t bytes_of(float x) {
    return static_cast<std::uint32_t>(__float2int_rn(x) + 0x8080);
  }
};

template <typename T, int dim, int tiles>
struct CodeQueries<T, dim, DType::f8e4m3, tiles> {
  using Pairs = CodePairs<Half, DType::f8e4m3>;
  static constexpr int kSteps = KeyWords<dim>::kWords;  // 16 elements of the head dim each
  std::uint32_t pairs[kSteps][4];
  float unit[tiles];  // of the lane's rows

  __device__ void load(const unsigned char* rows) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      QueryPart<T, dim> q;
      float power = 0.f;
      if (m < tiles) {
        q.read(rows + (8 * m + lane_of_warp() / 4) * PaddedRows<dim>::kRowBytes);
        power = power_for(q.largest());
        unit[m < tiles ? m : 0] = 1.f / power;
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          pairs[s][2 * i + m] =
              m < tiles ? pack(power * q.x[s][2 * i], power * q.x[s][2 * i + 1], Half()) : 0u;
        }
      }
    }
  }
  // scores = Q K^T times the scales of the keys, in units of the queries.
  __device__ void multiply(const KeyWords<dim>& keys, const KeyNumbers& scales,
                           CodeScores<tiles>& scores) const {
    float sums[kEights][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        std::uint32_t b[2];
        Pairs::decode(keys.of[n][s], b);
        mma_16x8x16(sums[n], pairs[s], b, Half());
      }
    }
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) scores[m][n][i] = scales[n][i] * sums[n][2 * m + i];
      }
    }
  }

 private:
  // The power of two that brings the largest element to at least 2^14, below f16's largest number.
  // Rows of nearly nothing get 2^73, whose inverse is far from 0. Infinity and NaN remain.
  __device__ static float power_for(std::uint32_t largest) {
    return __uint_as_float(min(127u + 127u + 14u - (largest >> 23), 200u) << 23);
  }
};

}  // namespace tessera::cuda::hopper_decode
