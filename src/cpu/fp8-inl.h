// Vectors of f32 from E4M3 bytes: 2^-8 of their values, which callers make up for in the end.

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

// An element of an fp8 weight, so that kernels for f16 and bf16 weights read fp8 as well.
struct E4M3 {
  std::uint8_t bits;

  friend float to_float(E4M3 x) { return e4m3_decode(x.bits) * 0x1p-8f; }
};

// For codes that are known to be numbers. An E4M3 is an f16 with a short mantissa and another bias.
// The sign moves up with the arithmetic shift and leaves a copy of itself where the exponent's top
// bit is 0.
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

// NaN would be the number after the largest.
template <class D>
HWY_INLINE hn::Vec<D> e4m3_to_f32(D d, const std::uint8_t* from) {
  const auto number = finite_e4m3_to_f32(d, from);
  const auto is_nan = hn::Gt(hn::Abs(number), hn::Set(d, 0x1p-8f * kE4M3Max));
  return hn::IfThenElse(is_nan, hn::NaN(d), number);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const E4M3* from) {
  return e4m3_to_f32(d, &from->bits);
}

// What a product with row `row` of an fp8 weight is multiplied with in the end.
inline float fp8_factor(const Weight& weight, std::int64_t row) {
  return 0x1p8f * weight.scales.ptr<const float>()[row * weight.scales.strides[0]];
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
