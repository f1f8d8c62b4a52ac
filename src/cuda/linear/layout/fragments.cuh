// Decodes packed codes to operands of the tensor cores: in registers, by shifts and masks, to f16
// or bf16 (T). Every function decodes the words of one lane and one slab (tile_layout.h) to four
// steps of A: a[j][0] and a[j][2] of row g, a[j][1] and a[j][3] of row g + 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/half.h"
#include "cuda/quant/codec.cuh"
#include "tessera/weight.h"

namespace tessera::cuda {

// Two values of T, 16 bits each, in a register.
using Halves = std::uint32_t;
using Fragments = Halves[4][4];  // [step][register of A]

// (x & mask) | base in one instruction; the compiler would make two because of the two constants.
__device__ inline std::uint32_t and_or(std::uint32_t x, std::uint32_t mask, std::uint32_t base) {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(base));
  return result;
#else
  return (x & mask) | base;
#endif
}

// ---- arithmetic on halves -----------------------------------------------------------------------

// CUDA's types of two values cannot be std::bit_cast.
template <typename To, typename From>
__device__ inline To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

template <typename T>
using CudaHalves = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;

template <typename T>
__device__ inline Halves multiply(Halves a, Halves b) {
  using P = CudaHalves<T>;
  return same_bits<Halves>(__hmul2_rn(same_bits<P>(a), same_bits<P>(b)));
}
template <typename T>
__device__ inline Halves subtract(Halves a, Halves b) {
  using P = CudaHalves<T>;
  return same_bits<Halves>(__hsub2_rn(same_bits<P>(a), same_bits<P>(b)));
}

// a * b - c, rounded once.
template <typename T>
__device__ inline Halves multiply_subtract(Halves a, Halves b, Halves c) {
  using P = CudaHalves<T>;
  return same_bits<Halves>(
      __hfma2(same_bits<P>(a), same_bits<P>(b), same_bits<P>(c ^ 0x80008000u)));
}

template <typename T>
__device__ inline Halves halves_of(float first, float second) {
  if constexpr (std::is_same_v<T, Half>) {
    return same_bits<Halves>(__floats2half2_rn(first, second));
  } else {
    return same_bits<Halves>(__floats2bfloat162_rn(first, second));
  }
}

// ---- E2M1 ---------------------------------------------------------------------------------------

// Exponent and mantissa bit are shifted to the lowest exponent bits and the highest mantissa bit of
// T. There they mean the same number times a power of two, subnormals included: 2^-14 in f16,
// 2^-126 in bf16.
__device__ inline void e2m1_halves(std::uint32_t w, Halves (&halves)[4], Half) {
  constexpr std::uint32_t kSign = 0x80008000u, kMagnitude = 0x0e000e00u;
  halves[0] = w & (kSign | kMagnitude);
  halves[1] = (w << 3 & kMagnitude) | (w << 1 & kSign);
  halves[2] = (w << 6 & kMagnitude) | (w << 3 & kSign);
  halves[3] = (w << 9 & kMagnitude) | (w << 2 & kSign);
}
__device__ inline void e2m1_halves(std::uint32_t w, Halves (&halves)[4], BFloat16) {
  constexpr std::uint32_t kSign = 0x80008000u, kMagnitude = 0x01c001c0u;
  halves[0] = (w >> 3 & kMagnitude) | (w & kSign);
  halves[1] = (w & kMagnitude) | (w << 1 & kSign);
  halves[2] = w << 3 & (kSign | kMagnitude);
  halves[3] = (w << 6 & kMagnitude) | (w << 2 & kSign);
}

// ---- int4 ---------------------------------------------------------------------------------------

// f16: a code as the low bits of a mantissa is 1024 + code, from which 1024 + the zero point is
// subtracted. A code four bits higher counts sixteenfold: (1024 + 16 code) / 16 - (64 + zero), also
// exact.
//
// bf16: the lowest eight bits alone, n, are the number n 2^-133, subnormal or not. A power of two
// makes that n 2^-13, from which the zero point is subtracted, exactly.
struct Int4Offsets {
  Halves low, high;
};

inline constexpr float kBf16Integer = 0x1p-13f;            // what an integer 1 becomes
inline constexpr Halves kLowBitsToInteger = 0x7b807b80u;   // 2^120
inline constexpr Halves kHighBitsToInteger = 0x79807980u;  // 2^116, for bits four places higher

template <typename T>
__device__ inline Int4Offsets int4_offsets(std::uint32_t zero) {
  const std::uint32_t both = zero << 16 | zero;
  if constexpr (std::is_same_v<T, Half>) return {0x64006400u | both, 0x54005400u | both << 4};
  const Halves offset = multiply<T>(both, kLowBitsToInteger);
  return {offset, offset};
}
__device__ inline void int4_halves(std::uint32_t w, const Int4Offsets& offsets, Halves (&halves)[4],
                                   Half) {
  constexpr Halves kSixteenth = 0x2c002c00u;
#pragma unroll
  for (int p = 0; p < 4; p += 2) {
    const std::uint32_t bits = w >> (4 * p);
    halves[p] = subtract<Half>(and_or(bits, 0x000f000fu, 0x64006400u), offsets.low);
    halves[p + 1] =
        multiply_subtract<Half>(and_or(bits, 0x00f000f0u, 0x64006400u), kSixteenth, offsets.high);
  }
}
__device__ inline void int4_halves(std::uint32_t w, const Int4Offsets& offsets, Halves (&halves)[4],
                                   BFloat16) {
#pragma unroll
  for (int p = 0; p < 4; p += 2) {
    const std::uint32_t bits = w >> (4 * p);
    halves[p] = multiply_subtract<BFloat16>(bits & 0x000f000fu, kLowBitsToInteger, offsets.low);
    halves[p + 1] =
        multiply_subtract<BFloat16>(bits & 0x00f000f0u, kHighBitsToInteger, offsets.high);
  }
}

// ---- nf4 ----------------------------------------------------------------------------------------

// All pairs of codes, indexed by the byte they form. Each lane has a copy in its own bank, so that
// lookups never collide: table[byte * 32 + lane].
inline constexpr int kNf4TableBytes = 256 * 32 * 4;

template <typename T>
__device__ inline void fill_nf4_table(Halves* table) {
  for (unsigned i = threadIdx.x; i < 256 * 32; i += blockDim.x) {
    const unsigned byte = i / 32;
    table[i] = halves_of<T>(kNf4Table[byte & 15u], kNf4Table[byte >> 4]);
  }
}
__device__ inline void nf4_halves(std::uint32_t w, const Halves* lane_table, Halves (&halves)[4]) {
#pragma unroll
  for (int p = 0; p < 4; ++p) halves[p] = lane_table[(w >> (8 * p) & 255u) * 32];
}

// ---- 8-bit codes --------------------------------------------------------------------------------

// Stored with 128 added, so that a byte is the low end of a mantissa. bf16: as for int4.
__device__ inline void int8_halves(std::uint32_t w, int zero, Halves (&halves)[2], Half) {
  const auto offset = static_cast<std::uint32_t>(0x6400 + 128 + zero);  // 1024 + 128 + zero
  halves[0] = subtract<Half>(__byte_perm(w, 0x64646464u, 0x4140), offset << 16 | offset);
  halves[1] = subtract<Half>(__byte_perm(w, 0x64646464u, 0x4342), offset << 16 | offset);
}
__device__ inline void int8_halves(std::uint32_t w, int zero, Halves (&halves)[2], BFloat16) {
  const float offset = kBf16Integer * static_cast<float>(128 + zero);
  const Halves offsets = halves_of<BFloat16>(offset, offset);
  halves[0] = multiply_subtract<BFloat16>(__byte_perm(w, 0, 0x4140), kLowBitsToInteger, offsets);
  halves[1] = multiply_subtract<BFloat16>(__byte_perm(w, 0, 0x4342), kLowBitsToInteger, offsets);
}

// E4M3's exponent becomes the lowest four bits of T's exponent. That gives 2^-8 of the number in
// f16. In bf16 it gives 2^-120, which is scaled back at once, because sums of such numbers would
// leave the range of f32.
__device__ inline void e4m3_halves(std::uint32_t w, Halves (&halves)[2], Half) {
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t x = __byte_perm(w, 0, i == 0 ? 0x1404 : 0x3424);
    halves[i] = (x & 0x80008000u) | (x >> 1 & 0x3f803f80u);
  }
}
__device__ inline void e4m3_halves(std::uint32_t w, Halves (&halves)[2], BFloat16) {
  constexpr Halves kBack = 0x7b807b80u;  // 2^120
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t x = __byte_perm(w, 0, i == 0 ? 0x1404 : 0x3424);
    halves[i] = multiply<BFloat16>((x & 0x80008000u) | (x >> 4 & 0x07f007f0u), kBack);
  }
}

// ---- a slab -------------------------------------------------------------------------------------

// Where block scales enter the product.
enum class ScaleMode : std::uint8_t {
  none,       // there are none: a row's single scale is applied at the end
  fragments,  // each weight is multiplied, in T: exact for E2M1, rounded for others
  sums,       // the sum over a slab is multiplied, in f32; blocks are multiples of a slab
};

// The inputs of decoding besides the codes.
struct DecodeState {
  const Halves* nf4_table = nullptr;  // this lane's
  Int4Offsets int4[2] = {};           // of rows g and g + 8
  int zeros[2] = {};                  // int8
};

// The words of a lane in one slab, and the factor for decoded numbers.
template <Format F, typename T>
struct TileFormat {
  static constexpr bool kFourBits = F != Format::int8 && F != Format::fp8 && F != Format::dense;
  static constexpr int kWords = F == Format::dense ? 16 : kFourBits ? 4 : 8;
  static constexpr bool kE2m1 = F == Format::nvfp4 || F == Format::mxfp4;
  // Block scales undo E2M1's 2^-14 or 2^-126 but for 2^-8 (scales.cuh).
  static constexpr bool kHalf = std::is_same_v<T, Half>;
  static constexpr bool kInteger = F == Format::int4 || F == Format::int8;
  static constexpr float kGain = kE2m1 || (F == Format::fp8 && kHalf) ? 256.f
                                 : kInteger && !kHalf                 ? 1 / kBf16Integer
                                                                      : 1.f;

  __device__ static void decode(const std::uint32_t (&words)[kWords], const DecodeState& state,
                                Fragments& a) {
    if constexpr (kFourBits) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          Halves halves[4];
          const std::uint32_t w = words[2 * side + h];
          if constexpr (kE2m1) {
            e2m1_halves(w, halves, T{});
          } else if constexpr (F == Format::int4) {
            int4_halves(w, state.int4[side], halves, T{});
          } else {
            nf4_halves(w, state.nf4_table, halves);
          }
#pragma unroll
          for (int p = 0; p < 4; ++p) a[2 * h + p / 2][side + p % 2 * 2] = halves[p];
        }
      }
    } else {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Halves halves[2];
          if constexpr (F == Format::int8) {
            int8_halves(words[4 * side + j], state.zeros[side], halves, T{});
          } else if constexpr (F == Format::fp8) {
            e4m3_halves(words[4 * side + j], halves, T{});
          } else {
            halves[0] = words[8 * side + 2 * j];
            halves[1] = words[8 * side + 2 * j + 1];
          }
          a[j][side] = halves[0];
          a[j][side + 2] = halves[1];
        }
      }
    }
  }
};

}  // namespace tessera::cuda
