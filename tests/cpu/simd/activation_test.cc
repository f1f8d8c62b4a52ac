// erfc and the activations on vectors, against float64, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/linear.h"
#include "support/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/activation_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using Lanes = hn::ScalableTag<float>;

// n is a multiple of every vector's length.
void erfc_of(const float* x, float* y, std::size_t n) {
  const Lanes d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(erfc_of_positive(d, hn::LoadU(d, x + i)), d, y + i);
}

template <Activation activation>
void activate_all(const float* x, float* y, std::size_t n) {
  const Lanes d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(activate<activation>(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void activation_of(Activation activation, const float* x, float* y, std::size_t n) {
  switch (activation) {
    case Activation::none:
      return activate_all<Activation::none>(x, y, n);
    case Activation::relu:
      return activate_all<Activation::relu>(x, y, n);
    case Activation::gelu:
      return activate_all<Activation::gelu>(x, y, n);
    case Activation::gelu_tanh:
      return activate_all<Activation::gelu_tanh>(x, y, n);
    case Activation::silu:
      return activate_all<Activation::silu>(x, y, n);
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(erfc_of);
HWY_EXPORT(activation_of);

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::gelu_tanh, Activation::silu};

// From -20 to 20 in steps of 2^-12, and far out on both sides.
std::vector<float> points() {
  std::vector<float> x;
  for (int i = -20 * 4096; i < 20 * 4096; ++i) x.push_back(static_cast<float>(i) / 4096);
  for (float far : {50.f, 87.f, 89.f, 104.f, 1e4f, 1e10f, 1e30f}) {
    x.push_back(far);
    x.push_back(-far);
  }
  x.resize((x.size() + 15) / 16 * 16, 0.f);
  return x;
}

TEST(Erfc, IsWithin5e7) {
  test::on_every_simd_target([] {
    std::vector<float> x = points(), y(x.size());
    for (float& value : x) value = std::abs(value);
    HWY_DYNAMIC_DISPATCH(erfc_of)(x.data(), y.data(), x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(y[i] - std::erfc(static_cast<double>(x[i]))));
    }
    EXPECT_LE(worst, 5e-7);
  });
}

// The error is at most 4e-7 of |x|: that of erf, of one exponential and of one division.
TEST(Activation, IsWithin4e7OfItsArgument) {
  test::on_every_simd_target([] {
    for (Activation activation : kActivations) {
      SCOPED_TRACE(name(activation));
      const std::vector<float> x = points();
      std::vector<float> y(x.size());
      HWY_DYNAMIC_DISPATCH(activation_of)(activation, x.data(), y.data(), x.size());
      double worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = std::abs(y[i] - reference::activate(activation, x[i]));
        worst = std::max(worst, error / std::max(1e-30, std::abs(static_cast<double>(x[i]))));
      }
      EXPECT_LE(worst, 4e-7);
    }
  });
}

// The tail of gelu is computed directly, not as a difference from 1, so it keeps some digits where
// erf would be -1.
TEST(Activation, GeluKeepsItsNegativeTail) {
  test::on_every_simd_target([] {
    std::vector<float> x(16, -5.f), y(16);
    HWY_DYNAMIC_DISPATCH(activation_of)(Activation::gelu, x.data(), y.data(), x.size());
    const double expected = reference::activate(Activation::gelu, -5.0);
    EXPECT_NEAR(y[0], expected, 0.01 * std::abs(expected));
  });
}

TEST(Activation, LetsNanThrough) {
  test::on_every_simd_target([] {
    for (Activation activation : kActivations) {
      SCOPED_TRACE(name(activation));
      std::vector<float> x(16, NAN), y(16, 0.f);
      HWY_DYNAMIC_DISPATCH(activation_of)(activation, x.data(), y.data(), x.size());
      EXPECT_TRUE(std::isnan(y[0]));
    }
  });
}

}  // namespace
}  // namespace tessera::cpu
#endif
