// The float64 twin that gradients of attention are compared with, compared with finite differences.
#include <gtest/gtest.h>

#include <cstddef>

#include "reference/attention.h"
#include "support/attention_case.h"

namespace tessera::test {
namespace {

// d/dx of sum(out * d_out), by central differences of the float64 forward pass.
void check_reference(const reference::AttentionInputs& in) {
  const Array d_out = random_normal(in.q.shape, 4);
  const reference::AttentionGradients g = reference::attention_backward(in, d_out);
  const auto loss = [&](const reference::AttentionInputs& at) {
    const Array out = reference::attention(at).out;
    double sum = 0;
    for (std::size_t i = 0; i < out.data.size(); ++i) sum += out.data[i] * d_out.data[i];
    return sum;
  };
  constexpr double kStep = 1e-5;  // truncation and rounding are both below 1e-9 here
  const auto compare = [&](Array reference::AttentionInputs::*member, const Array& gradient) {
    for (std::size_t i = 0; i < gradient.data.size(); ++i) {
      reference::AttentionInputs up = in, down = in;
      (up.*member).data[i] += kStep;
      (down.*member).data[i] -= kStep;
      EXPECT_NEAR((loss(up) - loss(down)) / (2 * kStep), gradient.data[i], 1e-8) << i;
    }
  };
  compare(&reference::AttentionInputs::q, g.d_q);
  compare(&reference::AttentionInputs::k, g.d_k);
  compare(&reference::AttentionInputs::v, g.d_v);
}

TEST(AttentionReference, GradientsAreThoseOfNumericalDifferentiation) {
  const Array q = random_normal({1, 5, 4, 3}, 1), k = random_normal({1, 7, 2, 3}, 2),
              v = random_normal({1, 7, 2, 3}, 3);
  check_reference({.q = q, .k = k, .v = v});
  check_reference({.q = q, .k = k, .v = v, .mask = Mask::causal(), .scale = 0.7, .softcap = 2.0});
  check_reference({.q = q, .k = k, .v = v, .mask = Mask::sinks(1, 2), .dropout = {0.4f, 9}});
  check_reference({.q = q, .k = k, .v = v, .mask = Mask::window(1, 1), .softcap = 1.0});
  check_reference(
      {.q = q, .k = k, .v = v, .mask = Mask::blocks(BlockMask::random(2, 3, 4, 2, 5), true)});
  check_reference({.q = q, .k = k, .v = v, .q_offsets = {0, 2, 5}, .k_offsets = {0, 6, 7}});
}

}  // namespace
}  // namespace tessera::test
