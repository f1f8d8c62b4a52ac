// One token in stream.cuh. Seven of the tensor cores' eight columns would be idle. Here they hold
// separate sums, so that a scale or zero point is applied once to the sum of its weights, in f32,
// and not to each weight:
//
//   E2M1   Each lane of A has a block of 16 weights, which share a scale. x of block b is in column
//          2 b, that of the pair's other slab in column 2 b + 1; elsewhere are zeros:
//
//             column         0   1   2   3   4   5   6   7
//             lanes t = 0    x   x'                            x: of slab 0
//                       1            x   x'                    x': of slab 1
//                       2                    x   x'
//                       3                            x   x'
//
//          So the sums of a feature are those of its blocks. The products of a slab with the other
//          slab's columns are not read.
//   int4   Codes go in as the integers that their bits are, with no arithmetic but masks. Every
//          other code lies four bits higher and counts sixteenfold; these have a separate sum. The
//          zero point is subtracted with the sum of x over the slab. All columns are the same.
//
// Read as a number of T, an integer of a few bits is tiny: n 2^-24 in f16, n 2^-133 in bf16 (E2M1:
// 2^-14, 2^-126). The sums of such numbers fit into f32, except for bf16: there x is multiplied by
// 2^80. If x is too large for that, its sums are large enough anyway.
#pragma once

#include <algorithm>

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/slab.cuh"
#include "cuda/tile/mma.cuh"

namespace tessera::cuda {

// The kinds of weights that have a kernel for one token.
constexpr bool has_one_token_kernel(Format format, ScaleMode mode) {
  return format == Format::nvfp4 || format == Format::mxfp4 ||
         (format == Format::int4 && mode == ScaleMode::sums);
}

// ---- x ------------------------------------------------------------------------------------------

// In shared memory: zeros for a lane's share of a slab, x, f32 sums of its slabs.
inline constexpr int kZeroBytes = 32;
TESSERA_HOST_DEVICE inline int one_token_bytes(int pairs) {
  return kZeroBytes + pairs * kPair * 2 + pairs * 2 * 4;
}

// Eight 16-bit numbers, of which the first `count` exist. Out of line, as it is rare; a template,
// so that every file may define it.
template <typename = void>
__device__ __noinline__ uint4 load_each_of_eight(const std::uint16_t* from, int count) {
  std::uint32_t words[4] = {};
  for (int e = 0; e < std::min(count, 8); ++e) {
    words[e / 2] |= std::uint32_t{from[e]} << (16 * (e % 2));
  }
  return {words[0], words[1], words[2], words[3]};
}

template <Format F, typename T>
struct StreamOne {
  static constexpr bool kInteger = F == Format::int4;
  static constexpr bool kScales = std::is_same_v<T, BFloat16>;
  // Base-2 logarithms of: the factor (and, as bits, the first x that it would make infinite); the
  // number that a weight of one is as bits; the number that a scale of one is in StreamOneSums.
  static constexpr int kFactor = 80;
  static constexpr std::uint32_t kTooLarge = (127 + 128 - kFactor) << 7;
  static constexpr Halves kFactorHalves = ((127 + kFactor) << 7) * 0x10001u;
  static constexpr int kOne = kInteger ? (kScales ? -133 : -24) : (kScales ? -126 : -14);
  static constexpr int kScaleOne = F == Format::nvfp4 ? -8 : 0;

  static constexpr float power(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
  }
  // The product of a weight of one and an x of one. (2^-133 is no normal number.)
  __device__ static float one(bool scaled) {
    return scaled ? power(kOne + kFactor) : kScales ? 0x1p-100f * power(kOne + 100) : power(kOne);
  }
  // Converts a sum to its true value: in two steps, as one factor may be too large for f32.
  __device__ static float in_full(float sum, bool scaled) {
    constexpr int kScaled = -kOne - kScaleOne - (kScales ? kFactor : 0), kNot = -kOne - kScaleOne;
    const float half = scaled ? power(kScaled / 2) : power(kNot / 2);
    return sum * half * (scaled ? power(kScaled - kScaled / 2) : power(kNot - kNot / 2));
  }

  // Copies x [depth] to shared memory; all threads call it. True: some of x is too large to be
  // scaled.
  __device__ static bool stage(const T* from, int depth, bool aligned, int pairs, bool scaled,
                               T* shared) {
    const int lane = threadIdx.x % 32, vectors = pairs * (kPair / 8);
    if (threadIdx.x < kZeroBytes / 4) reinterpret_cast<float*>(shared)[threadIdx.x] = 0;
    auto* x = reinterpret_cast<uint4*>(reinterpret_cast<char*>(shared) + kZeroBytes);
    auto* sums = reinterpret_cast<float*>(x + vectors);
    std::uint32_t largest = 0;
#pragma unroll 1  // all lanes of a warp the same number of times
    for (int first = static_cast<int>(threadIdx.x) - lane; first < vectors;
         first += static_cast<int>(blockDim.x)) {
      const int at = first + lane, k = at * 8;
      uint4 vector{};
      if (k < depth) {
        vector = aligned ? *reinterpret_cast<const uint4*>(from + k)
                         : load_each_of_eight(reinterpret_cast<const std::uint16_t*>(from + k),
                                              depth - k);
      }
      std::uint32_t words[4];
      store_words(vector, words);
      float sum = 0;
#pragma unroll
      for (std::uint32_t& word : words) {
        if constexpr (kInteger) {
          sum += to_f32(T{static_cast<std::uint16_t>(word)});
          sum += to_f32(T{static_cast<std::uint16_t>(word >> 16)});
        }
        if constexpr (kScales) {
          largest = std::max(largest, std::max(word & 0x7fffu, word >> 16 & 0x7fffu));
          if (scaled) word = multiply<T>(word, kFactorHalves);
        }
      }
      if constexpr (kInteger) {
#pragma unroll
        for (int far = 1; far < kSlab / 8; far *= 2) {
          sum += __shfl_xor_sync(0xffffffffu, sum, far);
        }
      }
      if (at >= vectors) continue;
      // A step of int4 has every other pair (StreamOneSums::decode()).
      x[at] = {words[0], words[kInteger ? 2 : 1], words[kInteger ? 1 : 2], words[3]};
      if (kInteger && at % (kSlab / 8) == 0) sums[at / (kSlab / 8)] = sum;
    }
    return largest >= kTooLarge;
  }
};

// ---- products -----------------------------------------------------------------------------------

// Forces the value to be computed here: its sources may be overwritten afterwards.
__device__ inline void settle([[maybe_unused]] float& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+f"(value));
#endif
}
__device__ inline void settle([[maybe_unused]] std::uint32_t& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#endif
}

// A warp's sums of its current tile.
template <Format F, ScaleMode S, bool Z, typename T>
struct StreamOneSums {
  static constexpr bool kInteger = F == Format::int4;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  const char* x;           // the lane's part of x, or zeros
  int x_mask;              // of byte offsets from x: 0 for zeros
  const float* slab_sums;  // of x
  bool scaled;             // x is, by StreamOne::stage()
  // Of rows g and g + 8. E2M1: the sums of the lane's block in both slabs. int4: the sums of codes
  // that count once, of codes that count sixteenfold, and of scale (times zero point) times the
  // slab's sum of x.
  float sums[2][kInteger ? 3 : 2] = {};

  __device__ StreamOneSums(const T* shared, int pairs, bool x_is_scaled, int lane)
      : scaled(x_is_scaled) {
    const char* zeros = reinterpret_cast<const char*>(shared);
    const char* all = zeros + kZeroBytes;
    const int t = lane % 4, column = lane / 4;
    const bool mine = kInteger || column / 2 == t;
    x = !mine ? zeros : all + t * 32 + (kInteger ? 0 : column % 2 * (kSlab * 2));
    x_mask = mine ? -1 : 0;
    slab_sums = reinterpret_cast<const float*>(all + pairs * kPair * 2);
  }

  // In f32, of rows g and g + 8.
  __device__ static void row_scale_values(const RawScales& raw, int slab, const RowState& rows,
                                          float (&values)[2]) {
    if constexpr (F == Format::nvfp4) {
      Halves halves[2];
      e4m3_halves(raw.words[0], halves, Half{});  // times 2^-8
      values[0] = to_f32(Half{static_cast<std::uint16_t>(halves[slab])});
      values[1] = to_f32(Half{static_cast<std::uint16_t>(halves[slab] >> 16)});
    } else {
      scale_values<F>(raw, slab, values);
#pragma unroll
      for (int side = 0; side < 2; ++side) values[side] *= rows.inverse[side];
    }
  }

  // With int4, steps 0 and 2 have the codes that count once, 1 and 3 those that count sixteenfold.
  __device__ static void decode(const std::uint32_t (&words)[kWords], const RowState& rows,
                                Fragments& a) {
    if constexpr (kInteger) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int far = 0; far < 2; ++far) {
            const std::uint32_t bits = words[2 * side + h] >> (8 * far);
            a[2 * h][side + 2 * far] = bits & 0x000f000fu;
            a[2 * h + 1][side + 2 * far] = bits & 0x00f000f0u;
          }
        }
      }
    } else {
      TileFormat<F, T>::decode(words, rows.decode, a);
    }
  }

  // from: the lane's 16 activations. products: with int4, first of codes that count once, then of
  // the others.
  __device__ static void multiply_slab(const Fragments& a, const uint4* from,
                                       float (&products)[2][4]) {
    const uint4 low = from[0], high = from[1];
    const Halves b[4][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_16x8x16(products[kInteger ? j % 2 : 0], a[j], b[j], T{});
  }

  // Multiplies a pair of slabs, from depth `k` of x on; load_next() overwrites the pair.
  template <typename Load>
  __device__ void multiply(SlabPair<kWords>& pair, int k, RowState& rows, Load&& load_next) {
    const auto* from = reinterpret_cast<const uint4*>(x + (k * 2 & x_mask));
    float scales[2][2];
    [[maybe_unused]] float zeros[2][2];  // times scales
    Fragments a[2];
    float products[2][2][4] = {};
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      row_scale_values(pair.scales, slab, rows, scales[slab]);
      if constexpr (Z) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const std::uint32_t zero = pair.scales.zeros >> (16 * slab + 8 * side) & 255u;
          zeros[slab][side] = scales[slab][side] * static_cast<float>(zero);
        }
      }
      decode(pair.words[slab], rows, a[slab]);
      if (slab == 0) multiply_slab(a[0], from, products[0]);
    }
    // Otherwise the compiler would copy the loaded values, and so wait for them.
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        settle(scales[slab][side]);
        if constexpr (Z) settle(zeros[slab][side]);
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) settle(a[slab][i / 4][i % 4]);
    }
    load_next();
    multiply_slab(a[1], kInteger ? from + kSlab / 8 : from, products[1]);
    const float* of_x = slab_sums + k / kSlab;
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float scale = scales[slab][side];
        float(&mine)[kInteger ? 3 : 2] = sums[side];
        if constexpr (kInteger) {
          mine[0] += scale * products[slab][0][2 * side];
          mine[1] += scale * products[slab][1][2 * side];
          mine[2] += (Z ? zeros[slab][side] : scale) * of_x[slab];
        } else {
          mine[slab] += scale * products[slab][0][2 * side + slab];
        }
      }
    }
  }

  // Puts the tile's sums into a slot and starts the next tile's.
  __device__ void put(float* slot, int lane) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float(&mine)[kInteger ? 3 : 2] = sums[side];
      float sum;
      if constexpr (kInteger) {
        constexpr float kMiddle = Z ? 1 : 8;  // of the codes, if there are no zero points
        sum = mine[0] + mine[1] * 0.0625f - kMiddle * StreamOne<F, T>::one(scaled) * mine[2];
      } else {
        sum = mine[0] + mine[1];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      }
      if (lane % 4 == 0) slot[lane / 4 + 8 * side] = sum;
#pragma unroll
      for (float& each : mine) each = 0;
    }
  }
};

}  // namespace tessera::cuda
