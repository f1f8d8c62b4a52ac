// What the norms refuse, with which message, before anything is written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/norm_case.h"
#include "support/refusal.h"
#include "tessera/norm.h"

namespace tessera::test {
namespace {

class NormRefusalTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormRefusalTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(NormRefusalTest, RefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<Refusal<NormArgs>> refusals = {
      {[](NormArgs& a) { a.x = {}; }, "layer_norm: x was not given"},
      {[](NormArgs& a) { a.x.device = Device::cuda(7); },
       "layer_norm: x is on cuda:7, but the context runs on " + here},
      {[](NormArgs& a) { a.x.dtype = DType::i32; },
       "layer_norm: x is i32; accepted: f32, f16, bf16"},
      {[](NormArgs& a) { a.x.data = nullptr; },
       "layer_norm: x f32[3, 5] has no data (null pointer)"},
      {[](NormArgs& a) { a.x.data = a.x.ptr<char>() + 1; },
       "layer_norm: x f32[3, 5] is not aligned to its 4-byte elements"},
      {[](NormArgs& a) { a.x.strides[0] = kHuge; },
       "size 2 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
      {[](NormArgs& a) {
         a.x.strides = {1, 3};
       },
       "layer_norm: the last dimension of x must be contiguous, got f32[3, 5] with strides [1, 3]"},
      {[](NormArgs& a) { a.x.strides[0] = -5; },
       "layer_norm: x has a negative stride: f32[3, 5] with strides [-5, 1]"},
      {[](NormArgs& a) { a.weight = {}; }, "layer_norm: weight was not given"},
      {[](NormArgs& a) { a.weight.shape[0] = 4; },
       "layer_norm: weight must have shape [5], got f32[4]"},
      {[](NormArgs& a) { a.weight.dtype = DType::u8; },
       "layer_norm: weight is u8; accepted: f32, f16, bf16"},
      {[](NormArgs& a) { a.bias.shape[0] = 4; },
       "layer_norm: bias must have shape [5], got f32[4]"},
      {[](NormArgs& a) { a.eps = -1.f; }, "layer_norm: eps is -1; it must be 0 or more"},
      {[](NormArgs& a) { a.eps = NAN; }, "layer_norm: eps is nan; it must be 0 or more"},
      {[](NormArgs& a) { a.dropout.p = 1.f; }, "layer_norm: dropout p is 1; it must be in [0, 1)"},
      {[](NormArgs& a) { a.dropout.p = -0.5f; },
       "layer_norm: dropout p is -0.5; it must be in [0, 1)"},
      {[](NormArgs& a) { a.dropout.p = NAN; },
       "layer_norm: dropout p is nan; it must be in [0, 1)"},
      {[](NormArgs& a) {
         a.dropout.p = 0.5f;
         a.residuals = {};
         a.sum = {};
       },
       "layer_norm: dropout p is 0.5 without residuals: dropout applies to x before the residuals "
       "are added; "
       "give at least one residual, or p = 0"},
      {[](NormArgs& a) { a.residuals[0] = {}; },
       "layer_norm: residuals[1] was given but residuals[0] was not: fill them in order"},
      {[](NormArgs& a) { a.residuals[1].dtype = DType::f16; },
       "layer_norm: residuals[1] is f16, but x is f32: they must be the same"},
      {[](NormArgs& a) { a.residuals[1].shape[0] = 2; },
       "layer_norm: residuals[1] must have the shape of x, f32[3, 5], got f32[2, 5]"},
      {[](NormArgs& a) { a.residuals[0].data = nullptr; },
       "layer_norm: residuals[0] f32[3, 5] has no data (null pointer)"},
      {[](NormArgs& a) { a.sum = {}; },
       "layer_norm: sum was not given; with residuals it receives x + residuals"},
      {[](NormArgs& a) { a.residuals = {}; },
       "layer_norm: sum was given without residuals: it would be a copy of x"},
      {[](NormArgs& a) { a.sum.dtype = DType::bf16; },
       "layer_norm: sum is bf16, but x is f32: they must be the same"},
      {[](NormArgs& a) { a.sum.strides[0] = 0; },
       "layer_norm: sum reaches an element more than once: f32[3, 5] with strides [0, 1]"},
      {[](NormArgs& a) { a.sum.data = a.x.ptr<float>() + 1; },
       "layer_norm: sum overlaps the memory of x"},
      {[](NormArgs& a) { a.sum = a.out; }, "layer_norm: out overlaps the memory of sum"},
      {[](NormArgs& a) { a.out = {}; }, "layer_norm: out was not given"},
      {[](NormArgs& a) { a.out.shape[1] = 4; },
       "layer_norm: out must have the shape of x, f32[3, 5], got f32[3, 4] with strides [5, 1]"},
      {[](NormArgs& a) { a.out.device = Device::cuda(7); },
       "layer_norm: out is on cuda:7, but the context runs on " + here},
      {[](NormArgs& a) { a.out.data = a.residuals[1].ptr<float>() + 2; },
       "layer_norm: out overlaps the memory of residuals[1]"},
      {[](NormArgs& a) { a.out.data = a.weight.data; },
       "layer_norm: out overlaps the memory of weight"},
      {[](NormArgs& a) { a.sum.data = a.bias.data; },
       "layer_norm: sum overlaps the memory of bias"},
  };
  for (const Refusal<NormArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    NormCall call(ctx(), {.shape = {3, 5}, .residuals = 2});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { layer_norm(ctx(), call.args); }, refusal.text, refusal.code));
    for (const TestTensor* tensor : {&call.x, &call.weight, &call.bias, &call.out, &call.sum,
                                     &call.residuals[0], &call.residuals[1]}) {
      EXPECT_TRUE(tensor->untouched());
    }
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST_P(NormRefusalTest, RmsNormTakesNoBias) {
  NormCall call(ctx(), {.shape = {3, 5}});
  EXPECT_TRUE(refuses([&] { rms_norm(ctx(), call.args); },
                      "rms_norm: bias was given; use layer_norm for a norm with a bias"));
  EXPECT_TRUE(call.out.untouched());
}

}  // namespace
}  // namespace tessera::test
