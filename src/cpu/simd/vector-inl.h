// Loads and stores vectors of f32 as f32, f16 and bf16, and loads int8, for Highway kernels. Stores
// round to nearest, ties to even, on every target, bit for bit like core/half.h (Highway 1.0.3's
// own bf16 store truncates).

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_VECTOR_INL_H_
#undef TESSERA_CPU_VECTOR_INL_H_
#else
#define TESSERA_CPU_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/half.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- whole vectors ------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const Half* from) {
#if HWY_TARGET <= HWY_AVX2  // lower is better: AVX2 and AVX-512 convert in hardware
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
#else  // Highway 1.0.3's own conversion is wrong for infinity and NaN
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du32;
  const auto bits =
      hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du32, 0x8000)));
  // Exponent and mantissa, moved to their places in f32, are too small by a factor of 2^112,
  // subnormals included. A result of 2^16 or more had all exponent bits set, and gets them back.
  const auto moved = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(du32, 0x7fff))));
  const auto number = hn::Mul(moved, hn::Set(d, 0x1p112f));
  const auto special = hn::Or(number, hn::BitCast(d, hn::Set(du32, 0x7f800000)));
  const auto is_special = hn::Ge(number, hn::Set(d, 65536.f));
  return hn::Or(hn::IfThenElse(is_special, special, number), hn::BitCast(d, sign));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const std::int8_t* from) {
  const hn::Rebind<std::int8_t, D> di8;
  const hn::RebindToSigned<D> di32;
  return hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(di8, from)));
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, float* to) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void store_f32([[maybe_unused]] D d, hn::Vec<D> v, Half* to) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = to_f16(lanes[i]);
#endif
}

// The bits of the nearest bf16, ties to even, in the low half of each lane.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bf16_bits(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::BitCast(du32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fff))));
  const auto quiet_nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du32, 0x40));
  return hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(v)), quiet_nan, rounded);
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, BFloat16* to) {
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::BitCast(di32, bf16_bits(d, v));
  hn::StoreU(hn::DemoteTo(du16, bits), du16, reinterpret_cast<std::uint16_t*>(to));
}

// ---- the last vector of a row, n < Lanes(d) -----------------------------------------------------

// Lanes from n on are zero.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_f32_n(D d, const T* from, std::size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i] = to_float(from[i]);
  return hn::Load(d, lanes);
}

template <class D, typename T>
HWY_INLINE void store_f32_n(D d, hn::Vec<D> v, T* to, std::size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < n; ++i) to[i] = from_float<T>(lanes[i]);
}

// ---- up to a vector, n <= Lanes(d): for loops that treat the last vector like all others --------

template <class D, typename T>
HWY_INLINE hn::Vec<D> load_f32_up_to(D d, const T* from, std::size_t n) {
  return HWY_LIKELY(n == hn::Lanes(d)) ? load_f32(d, from) : load_f32_n(d, from, n);
}

template <class D, typename T>
HWY_INLINE void store_f32_up_to(D d, hn::Vec<D> v, T* to, std::size_t n) {
  if (HWY_LIKELY(n == hn::Lanes(d))) {
    store_f32(d, v, to);
  } else {
    store_f32_n(d, v, to, n);
  }
}

// ---- rounding and whole rows --------------------------------------------------------------------

// The value after storing as T and loading again.
template <typename T, class D>
HWY_INLINE hn::Vec<D> rounded_to(D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(bf16_bits(d, v)));
  } else {
    T lanes[hn::MaxLanes(d)];
    store_f32(d, v, lanes);
    return load_f32(d, lanes);
  }
}

// Converts a whole row.
template <class D, typename T>
HWY_INLINE void convert_row_to_f32(D d, const T* from, float* to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_f32(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
