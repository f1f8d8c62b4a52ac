// The activations of a linear layer, on vectors of f32.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ACTIVATION_INL_H_
#undef TESSERA_CPU_ACTIVATION_INL_H_
#else
#define TESSERA_CPU_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/simd/erfc-inl.h"
#include "tessera/linear.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// x / (1 + exp(-z)). Beyond 88 the exponential would overflow f32.
template <class D>
HWY_INLINE hn::Vec<D> times_sigmoid(D d, hn::Vec<D> x, hn::Vec<D> z) {
  const auto e = hn::Exp(d, hn::Min(hn::Neg(z), hn::Set(d, 88.f)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.f), e));
}

template <Activation activation, class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> x) {
  if constexpr (activation == Activation::relu) {
    // A comparison, unlike a maximum, lets NaN through.
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  } else if constexpr (activation == Activation::gelu) {
    // x * P(normal < x). The smaller tail is computed directly, not as a difference from 1.
    const auto tail = hn::Mul(hn::Set(d, 0.5f),
                              erfc_of_positive(d, hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f))));
    const auto negative = hn::Lt(x, hn::Zero(d));
    return hn::Mul(x, hn::IfThenElse(negative, tail, hn::Sub(hn::Set(d, 1.f), tail)));
  } else if constexpr (activation == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
    const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.f));
    return times_sigmoid(d, x, hn::Mul(hn::Mul(x, cubic), hn::Set(d, 2 * 0.79788456f)));
  } else if constexpr (activation == Activation::silu) {
    return times_sigmoid(d, x, x);
  } else {
    return x;
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
