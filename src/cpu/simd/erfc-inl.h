// The complementary error function on vectors of f32, for the exact GELU.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ERFC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ERFC_INL_H_
#undef TESSERA_CPU_ERFC_INL_H_
#else
#define TESSERA_CPU_ERFC_INL_H_
#endif

#include <hwy/highway.h>
// Must come after highway.h.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// erfc(z) for z >= 0: exp(-z^2) times a polynomial in t = 1 / (1 + p z). Abramowitz and Stegun,
// Handbook of Mathematical Functions, 7.1.26. Its error is at most 1.5e-7, here 5e-7 with the
// rounding of f32, and shrinks as z grows.
template <class D>
HWY_INLINE hn::Vec<D> erfc_of_positive(D d, hn::Vec<D> z) {
  const auto t = hn::Div(hn::Set(d, 1.f), hn::MulAdd(hn::Set(d, 0.3275911f), z, hn::Set(d, 1.f)));
  auto p = hn::MulAdd(t, hn::Set(d, 1.061405429f), hn::Set(d, -1.453152027f));
  p = hn::MulAdd(t, p, hn::Set(d, 1.421413741f));
  p = hn::MulAdd(t, p, hn::Set(d, -0.284496736f));
  p = hn::MulAdd(t, p, hn::Set(d, 0.254829592f));
  return hn::Mul(hn::Mul(t, p), hn::Exp(d, hn::Neg(hn::Mul(z, z))));
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
