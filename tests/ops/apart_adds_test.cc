// Bias and residual of linear() in a pass of their own: the same bits, and a call more in the
// trace.
#include "ops/apart_adds.h"

#include <gtest/gtest.h>

#include "reference/test_tensor.h"
#include "support/compare.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class ApartAddsTest : public testing::Test {
 protected:
  Context ctx_{ContextOptions{.threads = 2, .trace = true}};
  TestTensor x_{ctx_, random_normal({5, 37}, 1), DType::f32};
  TestTensor weight_{ctx_, random_normal({23, 37}, 2), DType::f32};
  TestTensor bias_{ctx_, random_normal({23}, 3), DType::bf16};
  TestTensor residual_{ctx_, random_normal({5, 23}, 4), DType::f32};

  LinearArgs args(const Tensor& out) const {
    return {.x = x_, .weight = Weight::dense(weight_), .out = out};
  }
  Array run(LinearArgs call, bool apart) {
    const TestTensor out = TestTensor::poisoned(ctx_, {5, 23}, DType::f32);
    call.out = out;
    ctx_.trace().clear();
    if (apart) {
      const ApartAdds adds;
      linear(ctx_, call);
    } else {
      linear(ctx_, call);
    }
    return out.read();
  }
};

TEST_F(ApartAddsTest, SameBitsInTwoCalls) {
  for (const bool with_bias : {true, false}) {
    for (const bool with_residual : {true, false}) {
      LinearArgs call = args({});
      if (with_bias) call.bias = bias_;
      if (with_residual) call.residual = residual_;
      const Array fused = run(call, false);
      EXPECT_EQ(ctx_.trace().calls("add"), 0);
      EXPECT_TRUE(identical(run(call, true), fused)) << with_bias << with_residual;
      EXPECT_EQ(ctx_.trace().calls("linear"), 1);
      EXPECT_EQ(ctx_.trace().calls("add", "cpu.apart"), with_bias || with_residual);
    }
  }
}

TEST_F(ApartAddsTest, TheResidualMayBeTheOutput) {
  LinearArgs call = args({});
  call.residual = residual_;
  const Array expected = run(call, false);
  const TestTensor both(ctx_, random_normal({5, 23}, 4), DType::f32);
  call.residual = call.out = both;
  const ApartAdds adds;
  linear(ctx_, call);
  EXPECT_TRUE(identical(both.read(), expected));
}

TEST_F(ApartAddsTest, AnActivationStaysFused) {
  LinearArgs call = args({});
  call.bias = bias_;
  call.activation = Activation::gelu;
  run(call, true);
  EXPECT_EQ(ctx_.trace().calls("add"), 0);
}

}  // namespace
}  // namespace tessera::test
