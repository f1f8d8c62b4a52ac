// Decodes 8-bit codes in registers, from the bytes of a word to the pairs of 16-bit numbers that
// mma.sync takes: both kinds of codes, to f16 and bf16, in as few instructions as possible.
//
//   a word      | c0 | c1 | c2 | c3 |          the lowest byte first
//   its pairs     c0 c1 and c2 c3,             or, where that takes less (kSpread),
//                 c0 c2 and c1 c3
//
// The order does not matter to a sum over pairs, as long as the other factor has the same order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/half.h"
#include "cuda/linear/layout/fragments.cuh"
#include "tessera/dtype.h"

namespace tessera::cuda {

template <typename T, DType stored>
struct CodePairs;

// What both dtypes of a kind have in common: which bytes form a pair of a sum.
template <bool spread>
struct PairOrder {
  static constexpr bool kSpread = spread;

  // Interleaves codes 0 and 1 of x and y: the first pair of the word is both codes 0, the second
  // pair is both codes 1.
  __device__ static std::uint32_t join_low(std::uint32_t x, std::uint32_t y) {
    return __byte_perm(x, y, spread ? 0x5410 : 0x5140);
  }
  // The same for codes 2 and 3.
  __device__ static std::uint32_t join_high(std::uint32_t x, std::uint32_t y) {
    return __byte_perm(x, y, spread ? 0x7632 : 0x7362);
  }
  // The 16-bit numbers 0 and 1 form the first pair, 2 and 3 the second.
  __device__ static void order(std::uint32_t x, std::uint32_t y, Halves& first, Halves& second) {
    first = spread ? __byte_perm(x, y, 0x5410) : x;
    second = spread ? __byte_perm(x, y, 0x7632) : y;
  }
};

// int8 / 128. With 128 added, a byte is the low end of a mantissa. f16: 8 + (code + 128) / 128,
// then subtract 9. bf16: the lowest eight bits alone, n, are the number n 2^-133, subnormal or not;
// multiply by 2^126 and subtract 1. Both are exact. They take 2.5 instructions for a pair.
template <typename T>
struct CodePairs<T, DType::i8> : PairOrder<false> {
  static constexpr float kUnit = 1.f / 128;  // what the code of 1 becomes

  __device__ static void decode(std::uint32_t codes, Halves (&pairs)[2]) {
    const std::uint32_t w = codes ^ 0x80808080u;
    if constexpr (std::is_same_v<T, Half>) {
      pairs[0] = subtract<T>(__byte_perm(w, 0x48484848u, 0x4140), 0x48804880u);
      pairs[1] = subtract<T>(__byte_perm(w, 0x48484848u, 0x4342), 0x48804880u);
    } else {
      constexpr Halves kPower = 0x7e807e80u, kOne = 0x3f803f80u;  // 2^126
      pairs[0] = multiply_subtract<T>(__byte_perm(w, 0, 0x4140), kPower, kOne);
      pairs[1] = multiply_subtract<T>(__byte_perm(w, 0, 0x4342), kPower, kOne);
    }
  }
};

// E4M3 as f16: one instruction for a pair from sm_89 on. On older GPUs, the exponent becomes the
// lowest four bits of f16's exponent. That gives 2^-8 of the number, subnormals included.
template <>
struct CodePairs<Half, DType::f8e4m3> : PairOrder<false> {
  static constexpr float kUnit = 1.f;

  __device__ static void decode(std::uint32_t codes, Halves (&pairs)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;}"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(codes));
#else
    constexpr Halves kBack = 0x5c005c00u;  // 2^8
    e4m3_halves(codes, pairs, Half{});
    pairs[0] = multiply<Half>(pairs[0], kBack);
    pairs[1] = multiply<Half>(pairs[1], kBack);
#endif
  }
};

// E4M3 as bf16: the exponent becomes the lowest four bits of bf16's exponent. That gives 2^-120 of
// the number, subnormals included. It is scaled back at once, because sums of such numbers would
// leave the range of f32. The upper byte of each half is already in place, so spread pairs take
// half an instruction less.
template <>
struct CodePairs<BFloat16, DType::f8e4m3> : PairOrder<true> {
  static constexpr float kUnit = 1.f;

  __device__ static void decode(std::uint32_t codes, Halves (&pairs)[2]) {
    constexpr Halves kSign = 0x80008000u, kMagnitude = 0x07f007f0u, kBack = 0x7b807b80u;  // 2^120
    const Halves even = and_or(codes << 8, kSign, codes << 4 & kMagnitude);
    const Halves odd = and_or(codes, kSign, codes >> 4 & kMagnitude);
    pairs[0] = multiply<BFloat16>(even, kBack);
    pairs[1] = multiply<BFloat16>(odd, kBack);
  }
};

// A weight times its scale is small where the values are small. The largest code times this gain is
// about 128, so f16 does not lose such products. bf16 loses nothing.
template <typename T, DType stored>
constexpr float code_gain() {
  return !std::is_same_v<T, Half> ? 1.f : stored == DType::i8 ? 128.f : 256.f;
}

}  // namespace tessera::cuda
