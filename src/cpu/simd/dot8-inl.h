// Dot products of bytes, four to a lane: the instruction that Highway 1.0.3 does not have.
//
//   w    |w0 w1 w2 w3|w4 w5 w6 w7| ...      a step: four weights for each 32-bit lane
//   x    |x0 x1 x2 x3|x0 x1 x2 x3| ...      four activations, the same for every lane
//   sum  | s += w.x  | s += w.x  | ...
//
// Each target has its own cheapest way, and each way needs its weights shifted by a constant:
//
//   AVX-512 VNNI    unsigned * signed in one instruction          w + 128
//   SSE4, AVX2      the same in 16 bits, which saturates:
//     narrow        weights in [-15, 15] are safe                 w + 16, in [1, 31]
//     wide          |w| * (x with the sign of w)                  w
//   elsewhere       lane by lane, with shifts                     w
//
// A shift of `offset` adds offset * sum(x) to the result. The caller knows sum(x) and starts from
// -offset * sum(x).

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_DOT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_DOT8_INL_H_
#undef TESSERA_CPU_DOT8_INL_H_
#else
#define TESSERA_CPU_DOT8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

enum class Dot8Range {
  narrow,  // weights in [-15, 15]
  wide,    // weights in [-128, 127]
};

// Broadcasts four activations to every lane.
template <class D32>
HWY_INLINE hn::Vec<D32> broadcast4(D32 d, const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return hn::Set(d, four);
}

// All versions do the same: sums[r][v] += w[v] . x[r], for `steps` steps of shifted weights
// w[v][step] and x[r][0 .. 4 * steps), |x| <= 127. Several vectors v of weights share the
// broadcasts of x, and several rows r of x share the weights.

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL  // lower is better

constexpr int dot8_offset(Dot8Range) { return 128; }

// The instruction takes four cycles and starts every cycle: four sums in turns keep it busy.
inline constexpr int kDot8Rows = 2;

template <Dot8Range range, int steps, int rows, int vectors, class D32, class V32 = hn::Vec<D32>>
HWY_INLINE void dot8(D32, const V32* const (&w)[vectors], const std::int8_t* const (&x)[rows],
                     V32 (&sums)[rows][vectors]) {
  for (int step = 0; step < steps; ++step) {
    for (int r = 0; r < rows; ++r) {
      const auto& x4 = reinterpret_cast<const std::int8_t(&)[4]>(x[r][4 * step]);
      for (int v = 0; v < vectors; ++v) {
        // Written in assembly, because Highway 1.0.3 compiles this target without the flag that the
        // intrinsic needs (it names AVX-VNNI instead). The instruction broadcasts x itself.
        asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums[r][v].raw) : "v"(w[v][step].raw), "m"(x4));
      }
    }
  }
}

#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4

constexpr int dot8_offset(Dot8Range range) { return range == Dot8Range::narrow ? 16 : 0; }

#if HWY_TARGET == HWY_AVX2
using Raw = __m256i;
HWY_INLINE Raw multiply_pairs(Raw u8, Raw i8) { return _mm256_maddubs_epi16(u8, i8); }
HWY_INLINE Raw add_pairs(Raw a, Raw b) { return _mm256_add_epi16(a, b); }
HWY_INLINE Raw sum_pairs(Raw i16) { return _mm256_madd_epi16(i16, _mm256_set1_epi16(1)); }
HWY_INLINE Raw magnitude(Raw i8) { return _mm256_abs_epi8(i8); }
HWY_INLINE Raw with_sign_of(Raw i8, Raw sign) { return _mm256_sign_epi8(i8, sign); }
#else
using Raw = __m128i;
HWY_INLINE Raw multiply_pairs(Raw u8, Raw i8) { return _mm_maddubs_epi16(u8, i8); }
HWY_INLINE Raw add_pairs(Raw a, Raw b) { return _mm_add_epi16(a, b); }
HWY_INLINE Raw sum_pairs(Raw i16) { return _mm_madd_epi16(i16, _mm_set1_epi16(1)); }
HWY_INLINE Raw magnitude(Raw i8) { return _mm_abs_epi8(i8); }
HWY_INLINE Raw with_sign_of(Raw i8, Raw sign) { return _mm_sign_epi8(i8, sign); }
#endif

// Four steps in 16 bits: a pair is at most 2 * 31 * 127 = 7874, and four of them fit.
template <class D32, class V32 = hn::Vec<D32>>
HWY_INLINE V32 dot8_narrow4(D32 d, const V32* w, const std::int8_t* x) {
  Raw pairs = multiply_pairs(w[0].raw, broadcast4(d, x).raw);
  for (int j = 1; j < 4; ++j) {
    pairs = add_pairs(pairs, multiply_pairs(w[j].raw, broadcast4(d, x + 4 * j).raw));
  }
  return V32{sum_pairs(pairs)};
}

// One step: a pair is at most 2 * 128 * 127 = 32512, which just fits 16 bits.
template <class D32, class V32 = hn::Vec<D32>>
HWY_INLINE V32 dot8_wide(D32 d, V32 w, const std::int8_t* x) {
  const Raw x4 = with_sign_of(broadcast4(d, x).raw, w.raw);
  return V32{sum_pairs(multiply_pairs(magnitude(w.raw), x4))};
}

inline constexpr int kDot8Rows = 1;  // a block of weights leaves few of the 16 registers

template <Dot8Range range, int steps, int rows, int vectors, class D32, class V32 = hn::Vec<D32>>
HWY_INLINE void dot8(D32 d, const V32* const (&w)[vectors], const std::int8_t* const (&x)[rows],
                     V32 (&sums)[rows][vectors]) {
  constexpr int stride = range == Dot8Range::narrow ? 4 : 1;
  static_assert(steps % stride == 0);
  for (int step = 0; step < steps; step += stride) {
    for (int r = 0; r < rows; ++r) {
      const std::int8_t* from = x[r] + 4 * step;
      for (int v = 0; v < vectors; ++v) {
        if constexpr (range == Dot8Range::narrow) {
          sums[r][v] = hn::Add(sums[r][v], dot8_narrow4(d, w[v] + step, from));
        } else {
          sums[r][v] = hn::Add(sums[r][v], dot8_wide(d, w[v][step], from));
        }
      }
    }
  }
}

#else

constexpr int dot8_offset(Dot8Range) { return 0; }

// Byte `j` of each lane, with its sign.
template <int j, class V32>
HWY_INLINE V32 signed_byte(V32 lanes) {
  return hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * j>(lanes));
}

inline constexpr int kDot8Rows = 1;

template <Dot8Range range, int steps, int rows, int vectors, class D32, class V32 = hn::Vec<D32>>
HWY_INLINE void dot8(D32 d, const V32* const (&w)[vectors], const std::int8_t* const (&x)[rows],
                     V32 (&sums)[rows][vectors]) {
  for (int step = 0; step < steps; ++step) {
    for (int r = 0; r < rows; ++r) {
      const V32 b = broadcast4(d, x[r] + 4 * step);
      for (int v = 0; v < vectors; ++v) {
        const V32 a = w[v][step];
        V32& sum = sums[r][v];
        sum = hn::Add(sum, hn::Mul(signed_byte<0>(a), signed_byte<0>(b)));
        sum = hn::Add(sum, hn::Mul(signed_byte<1>(a), signed_byte<1>(b)));
        sum = hn::Add(sum, hn::Mul(signed_byte<2>(a), signed_byte<2>(b)));
        sum = hn::Add(sum, hn::Mul(signed_byte<3>(a), signed_byte<3>(b)));
      }
    }
  }
}

#endif

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
