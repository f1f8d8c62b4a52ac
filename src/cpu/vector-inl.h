// Vectors of f32 from and to memory of f32, f16 and bf16, for Highway kernels. Stores round to nearest, ties to even, on
// every target, bit for bit like core/half.h (Highway 1.0.3's own bf16 store cuts the low bits off).

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

#include "core/half.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- whole vectors -------------------------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const Half* from) {
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, float* to) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, Half* to) {
#if HWY_TARGET <= HWY_AVX2  // lower is better: AVX2 and AVX-512 convert in hardware
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = to_f16(lanes[i]);
#endif
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, BFloat16* to) {
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::BitCast(du32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fff))));
  const auto quiet_nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du32, 0x40));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(v));
  const auto result = hn::IfThenElse(is_nan, quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di32, result)), du16,
             reinterpret_cast<std::uint16_t*>(to));
}

// ---- the last vector of a row, n < Lanes(d) -----------------------------------------------------------------------------

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

// A whole row.
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
