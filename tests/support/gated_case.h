// Calls of gated_linear() for tests, like those of linear() in linear_case.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "reference/linear.h"
#include "reference/test_tensor.h"
#include "support/linear_case.h"
#include "tessera/linear.h"

namespace tessera::test {

struct GatedCase {
  std::int64_t rows = 3, in = 113, out = 70;
  WeightCase gate{}, up{};
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  Activations activations = Activations::exact;
  Activation activation = Activation::silu;
  std::uint64_t seed = 0;   // other numbers of the same kind
  bool any_kernel = false;  // as of product_bound()
};

struct GatedCall {
  GatedCall(Context& ctx, const GatedCase& how)
      : c(how),
        x(ctx, random_normal({c.rows, c.in}, c.seed + 1), c.dtype, c.layout),
        out(TestTensor::poisoned(ctx, {c.rows, c.out}, c.dtype, c.layout)),
        gate(ctx, c.gate, c.out, c.in, c.layout, c.seed + 5),
        up(ctx, c.up, c.out, c.in, c.layout, c.seed + 6) {
    ctx.set_activations(c.activations);
    args = {
        .x = x, .gate = gate.weight(), .up = up.weight(), .activation = c.activation, .out = out};
  }

  // The error of a product of two numbers that are each within their bounds.
  testing::AssertionResult correct() const {
    const Array x_values = x.read(), g = reference::linear(x_values, gate.values());
    const Array u = reference::linear(x_values, up.values());
    const Array expected =
        reference::gated_linear(x_values, gate.values(), up.values(), c.activation);
    Array bound = product_bound(x_values, c.dtype, gate, c.activations, c.any_kernel);
    Array up_bound = product_bound(x_values, c.dtype, up, c.activations, c.any_kernel);
    if (may_round_sums(out.view(), c.rows)) {
      for (std::size_t i = 0; i < bound.data.size(); ++i) {
        bound.data[i] += 0.51 * epsilon(c.dtype) * std::abs(g.data[i]);
        up_bound.data[i] += 0.51 * epsilon(c.dtype) * std::abs(u.data[i]);
      }
    }
    for (std::size_t i = 0; i < bound.data.size(); ++i) {
      const double z = std::abs(g.data[i]) + bound.data[i];
      const double activated = 1.13 * bound.data[i] + 4e-7 * z;
      const double factor = std::abs(u.data[i]) + up_bound.data[i];
      bound.data[i] = activated * factor + z * up_bound.data[i] + 0x1p-22 * z * factor;
    }
    if (!out.surroundings_intact() || !gate.untouched() || !up.untouched()) {
      return testing::AssertionFailure() << "wrote outside out";
    }
    return within(out.read(), expected, bound, c.dtype);
  }

  GatedCase c;
  TestTensor x, out;
  TestWeight gate, up;
  GatedLinearArgs args;
};

}  // namespace tessera::test
