// Vectors of f32 from E4M3 bytes. The results are the values times a fixed power of two
// (kE4M3Unit), which callers undo at the end.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_FP8_INL_H_
#undef TESSERA_CPU_FP8_INL_H_
#else
#define TESSERA_CPU_FP8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "quant/e4m3.h"
#include "tessera/weight.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The f32 that the functions below return for the value 1.
constexpr float kE4M3Unit = 0x1p-8f;
constexpr float kWovenUnit = 0x1p-120f;

// An element of an fp8 weight, so that kernels for f16 and bf16 weights read fp8 as well.
struct E4M3 {
  std::uint8_t bits;

  friend float to_float(E4M3 x) { return kE4M3Unit * e4m3_decode(x.bits); }
};

// For codes that are known not to be NaN. An E4M3 is an f16 with a short mantissa and another bias.
// The arithmetic shift moves the sign up and leaves a copy of it in the exponent's top bit, which
// the mask clears.
template <class D>
HWY_INLINE hn::Vec<D> finite_e4m3_to_f32(D d, const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, D> d8;
  const hn::Rebind<std::int16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto wide = hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(d8, from)));
  const auto bits =
      hn::And(hn::ShiftRight<1>(wide), hn::Set(d16, static_cast<std::int16_t>(0xbf80)));
  return hn::PromoteTo(d, hn::BitCast(dh, bits));
}

// For all codes. The function above decodes NaN to the number after the largest.
template <class D>
HWY_INLINE hn::Vec<D> e4m3_to_f32(D d, const std::uint8_t* from) {
  const auto number = finite_e4m3_to_f32(d, from);
  const auto is_nan = hn::Gt(hn::Abs(number), hn::Set(d, kE4M3Unit * kE4M3Max));
  return hn::IfThenElse(is_nan, hn::NaN(d), number);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const E4M3* from) {
  return e4m3_to_f32(d, &from->bits);
}

// ---- four vectors at a time --------------------------------------------------------------------

// to[j][i] = from[4 i + j]: interleaved, the cheapest order. Bytes become bf16 in place, 32 at a
// time. Their fields move to their places in a bf16, and the bias changes from 7 to 127.
#if HWY_TARGET == HWY_SCALAR  // one lane: no vectors of 16 bits

template <class D>
HWY_INLINE void load_woven(D d, const E4M3* from, hn::Vec<D> (&to)[4]) {
  for (int j = 0; j < 4; ++j) to[j] = hn::Set(d, kWovenUnit * e4m3_decode(from[j].bits));
}

#else

// From E4M3 in the upper half of each 16 bits to bf16. NaN, all ones below the sign, stays NaN.
template <class D16>
HWY_INLINE hn::Vec<D16> e4m3_to_bf16(D16 d, hn::Vec<D16> upper) {
  const auto bits =
      hn::And(hn::ShiftRight<4>(upper), hn::Set(d, static_cast<std::int16_t>(0x87f0)));
  const auto magnitude = hn::And(bits, hn::Set(d, 0x07f0));
  return hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, 0x07f0)), hn::Set(d, 0x7ff0), bits);
}

template <class D>
HWY_INLINE void load_woven(D d, const E4M3* from, hn::Vec<D> (&to)[4]) {
  const hn::Repartition<std::uint8_t, D> d8;
  const hn::Repartition<std::int16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bytes = hn::BitCast(d16, hn::LoadU(d8, &from->bits));
  const auto even = hn::BitCast(d32, e4m3_to_bf16(d16, hn::ShiftLeft<8>(bytes)));
  const auto odd = hn::BitCast(d32, e4m3_to_bf16(d16, bytes));
  const auto upper = hn::Set(d32, 0xffff0000u);
  to[0] = hn::BitCast(d, hn::ShiftLeft<16>(even));
  to[1] = hn::BitCast(d, hn::ShiftLeft<16>(odd));
  to[2] = hn::BitCast(d, hn::And(even, upper));
  to[3] = hn::BitCast(d, hn::And(odd, upper));
}

#endif

// The scale of a row of an fp8 weight.
inline float fp8_scale(const Weight& weight, std::int64_t row) {
  return weight.scales.ptr<const float>()[row * weight.scales.strides[0]];
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
