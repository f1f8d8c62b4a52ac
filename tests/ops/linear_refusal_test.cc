// What linear() and gated_linear() refuse, with which message, and that nothing is written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "support/linear_case.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::unique_ptr<Context> refusal_context() {
  return std::make_unique<Context>(ContextOptions{.threads = 2, .trace = true});
}

bool untouched(const LinearCall& call) {
  return call.x.untouched() && call.out.untouched() && call.weight.untouched() &&
         (!call.bias || call.bias->untouched()) && (!call.residual || call.residual->untouched());
}

void check_refusals(const LinearCase& c, const std::vector<Refusal<LinearArgs>>& refusals) {
  for (const Refusal<LinearArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const auto ctx = refusal_context();
    LinearCall call(*ctx, c);
    ctx->trace().clear();
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { linear(*ctx, call.args); }, refusal.text, refusal.code));
    EXPECT_TRUE(untouched(call));
    EXPECT_TRUE(ctx->trace().entries().empty());
  }
}

TEST(LinearRefuses, BadTensors) {
  check_refusals(
      {.in = 5, .out = 4, .bias = DType::f32, .residual = true},
      {
          {[](LinearArgs& a) { a.x = {}; }, "linear: x was not given"},
          {[](LinearArgs& a) { a.x.dtype = DType::i32; },
           "linear: x is i32; accepted: f32, f16, bf16"},
          {[](LinearArgs& a) { a.x.device = Device::cuda(7); },
           "linear: x is on cuda:7, but the context runs on cpu"},
          {[](LinearArgs& a) { a.x.data = nullptr; },
           "linear: x f32[3, 5] has no data (null pointer)"},
          {[](LinearArgs& a) { a.x.data = a.x.ptr<char>() + 1; },
           "linear: x f32[3, 5] is not aligned to its 4-byte elements"},
          {[](LinearArgs& a) {
             a.x.strides = {1, 3};
           },
           "linear: the last dimension of x must be contiguous, got f32[3, 5] with strides [1, 3]"},
          {[](LinearArgs& a) { a.x.strides[0] = kHuge; },
           "size 2 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
          {[](LinearArgs& a) { a.x.shape[1] = 4; },
           "linear: x f32[3, 4] with strides [5, 1] does not fit weight f32[4, 5]: its last "
           "dimension must be 5"},
          {[](LinearArgs& a) { a.out = {}; }, "linear: out was not given"},
          {[](LinearArgs& a) { a.out.dtype = DType::u8; },
           "linear: out is u8; accepted: f32, f16, bf16"},
          {[](LinearArgs& a) { a.out.shape[0] = 2; },
           "linear: out f32[2, 4] must have the shape of x f32[3, 5] in all but the last "
           "dimension"},
          {[](LinearArgs& a) {
             a.out = a.out.view({1, 3, 4});
           },
           "linear: out f32[1, 3, 4] must have the shape of x f32[3, 5] in all but the last "
           "dimension"},
          {[](LinearArgs& a) { a.out = a.out.slice(1, 0, 3); },
           "linear: out f32[3, 3] with strides [4, 1] does not fit weight f32[4, 5]: its last "
           "dimension must be 4"},
          {[](LinearArgs& a) { a.out.strides[0] = 0; },
           "linear: out reaches an element more than once: f32[3, 4] with strides [0, 1]"},
          {[](LinearArgs& a) { a.out.data = a.x.data; }, "linear: out overlaps the memory of x"},
          {[](LinearArgs& a) { a.out.data = a.weight.data.ptr<float>() + 3; },
           "linear: out overlaps the memory of weight"},
          {[](LinearArgs& a) { a.out.data = a.bias.data; },
           "linear: out overlaps the memory of bias"},
          {[](LinearArgs& a) { a.out.data = a.residual.ptr<float>() + 4; },
           "linear: out overlaps the memory of residual"},
          {[](LinearArgs& a) { a.bias.shape[0] = 3; },
           "linear: bias must have shape [4], got f32[3]"},
          {[](LinearArgs& a) { a.bias.dtype = DType::i8; },
           "linear: bias is i8; accepted: f32, f16, bf16"},
          {[](LinearArgs& a) { a.bias.data = nullptr; },
           "linear: bias f32[4] has no data (null pointer)"},
          {[](LinearArgs& a) { a.residual.dtype = DType::f16; },
           "linear: residual is f16; accepted: f32"},
          {[](LinearArgs& a) { a.residual = a.residual.slice(0, 0, 2); },
           "linear: residual must have the shape of out, f32[3, 4], got f32[2, 4]"},
          {[](LinearArgs& a) { a.activation = static_cast<Activation>(9); },
           "linear: 9 is not the number of an activation"},
      });
}

TEST(LinearRefuses, BadDenseWeights) {
  check_refusals({.in = 5, .out = 4},
                 {
                     {[](LinearArgs& a) { a.weight = {}; }, "linear: weight was not given"},
                     {[](LinearArgs& a) { a.weight.data.dtype = DType::i64; },
                      "linear: weight.data is i64; accepted: f32, f16, bf16"},
                     {[](LinearArgs& a) { a.weight.in_features = 6; },
                      "linear: weight.data must have shape [4, 6], got f32[4, 5]"},
                     {[](LinearArgs& a) { a.weight.out_features = -4; },
                      "linear: weight has a negative size: f32[-4, 5]"},
                     {[](LinearArgs& a) { a.weight.data.data = nullptr; },
                      "linear: weight.data f32[4, 5] has no data (null pointer)"},
                     {[](LinearArgs& a) { a.weight.layout = WeightLayout::cpu_tiles; },
                      "linear: weight is dense in groups of 0, which has no layout cpu_tiles; use "
                      "prepare() to "
                      "make one"},
                 });
}

TEST(LinearRefuses, BadPackedWeights) {
  check_refusals(
      {.in = 40, .out = 4, .weight = {.packed = {{.format = Format::nvfp4}}}},
      {
          {[](LinearArgs& a) { a.weight.scales = {}; }, "linear: weight.scales was not given"},
          {[](LinearArgs& a) { a.weight.data.shape[1] = 19; },
           "linear: weight.data must have shape [4, 20], got u8[4, 19] with strides [20, 1]"},
          {[](LinearArgs& a) { a.weight.zeros = a.weight.data; },
           "linear: weight is nvfp4, and only int4 and int8 take zeros"},
          {[](LinearArgs& a) { a.weight.tensor_scale = INFINITY; },
           "linear: weight.tensor_scale is inf; it must be finite"},
          {[](LinearArgs& a) { a.out.data = a.weight.scales.data; },
           "linear: out overlaps the memory of weight"},
      });
}

TEST(LinearRefuses, BadTiles) {
  check_refusals(
      {.in = 40,
       .out = 20,
       .weight = {.packed = {{.format = Format::int4, .group = 32, .zero_point = true}},
                  .prepared = true}},
      {
          {[](LinearArgs& a) { a.weight.group = 48; },
           "linear: weight is int4 in groups of 48, which has no layout cpu_tiles; use prepare() "
           "to "
           "make one"},
          {[](LinearArgs& a) { a.weight.in_features = -1; },
           "linear: weight has a negative size: int4[20, -1]"},
          {[](LinearArgs& a) { a.weight.in_features = kHuge - 40; },
           "size 9223372036854775776 x 64 does not fit into 64 bits", ErrorCode::overflow},
          {[](LinearArgs& a) { a.weight.data.shape[1] -= 1; },
           "linear: weight.data must have shape [2, 512], got u8[2, 511] with strides [512, 1]"},
          {[](LinearArgs& a) { a.weight.data.dtype = DType::i8; },
           "linear: weight.data is i8; accepted: u8"},
          {[](LinearArgs& a) { a.weight.data.strides[0] = 1024; },
           "linear: weight.data must be contiguous, as prepare() makes it, got u8[2, 512] with "
           "strides [1024, 1]"},
          {[](LinearArgs& a) { a.weight.data.data = a.weight.data.ptr<char>() + 4; },
           "linear: weight.data must start on a 64-byte boundary, as prepare() makes it"},
          {[](LinearArgs& a) { a.weight.data.data = nullptr; },
           "linear: weight.data u8[2, 512] has no data (null pointer)"},
          {[](LinearArgs& a) { a.weight.scales = {}; }, "linear: weight.scales was not given"},
          {[](LinearArgs& a) { a.weight.scales.dtype = DType::i8; },
           "linear: weight.scales is i8; accepted: f32, f16, bf16"},
          {[](LinearArgs& a) { a.weight.scales.shape[0] = 1; },
           "linear: weight.scales must have shape [2, 32], got bf16[1, 32]"},
          {[](LinearArgs& a) { a.weight.tensor_scale = NAN; },
           "linear: weight.tensor_scale is nan; it must be finite"},
          {[](LinearArgs& a) { a.weight.zeros.dtype = DType::i8; },
           "linear: weight.zeros is i8; accepted: u8"},
          {[](LinearArgs& a) { a.weight.zeros.shape[1] = 16; },
           "linear: weight.zeros must have shape [2, 32], got u8[2, 16] with strides [32, 1]"},
          {[](LinearArgs& a) { a.weight.out_features = 40; },
           "linear: weight.data must have shape [3, 512], got u8[2, 512]"},
          {[](LinearArgs& a) { a.weight.out_features = 19; },
           "linear: out f32[3, 20] does not fit weight int4[19, 40]: its last dimension must be "
           "19"},
      });
}

TEST(GatedLinearRefuses, BadArguments) {
  const std::vector<Refusal<GatedLinearArgs>> refusals = {
      {[](GatedLinearArgs& a) { a.x = {}; }, "gated_linear: x was not given"},
      {[](GatedLinearArgs& a) { a.gate = {}; }, "gated_linear: gate was not given"},
      {[](GatedLinearArgs& a) { a.up = {}; }, "gated_linear: up was not given"},
      {[](GatedLinearArgs& a) { a.up.data.data = nullptr; },
       "gated_linear: up.data f32[4, 5] has no data (null pointer)"},
      {[](GatedLinearArgs& a) { a.up = Weight::dense(a.up.data.slice(0, 0, 3)); },
       "gated_linear: out f32[3, 4] does not fit up f32[3, 5]: its last dimension must be 3"},
      {[](GatedLinearArgs& a) { a.gate = Weight::dense(a.gate.data.slice(1, 0, 4)); },
       "gated_linear: x f32[3, 5] does not fit gate f32[4, 4]: its last dimension must be 4"},
      {[](GatedLinearArgs& a) { a.out.data = a.up.data.data; },
       "gated_linear: out overlaps the memory of up"},
      {[](GatedLinearArgs& a) { a.out.shape[0] = 1; },
       "gated_linear: out f32[1, 4] must have the shape of x f32[3, 5] in all but the last "
       "dimension"},
      {[](GatedLinearArgs& a) { a.gate_bias = a.x.select(0, 0); },
       "gated_linear: gate_bias must have shape [4], got f32[5]"},
      {[](GatedLinearArgs& a) { a.up_bias = a.out.select(0, 0); },
       "gated_linear: out overlaps the memory of up_bias"},
      {[](GatedLinearArgs& a) { a.activation = static_cast<Activation>(77); },
       "gated_linear: 77 is not the number of an activation"},
  };
  for (const Refusal<GatedLinearArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const auto ctx = refusal_context();
    LinearCall call(*ctx, {.in = 5, .out = 4});
    const TestWeight up(*ctx, {}, 4, 5);
    GatedLinearArgs args{
        .x = call.x, .gate = call.weight.weight(), .up = up.weight(), .out = call.out};
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { gated_linear(*ctx, args); }, refusal.text, refusal.code));
    EXPECT_TRUE(untouched(call));
    EXPECT_TRUE(up.untouched());
  }
}

}  // namespace
}  // namespace tessera::test
