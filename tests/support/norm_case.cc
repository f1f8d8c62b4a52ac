#include "support/norm_case.h"

#include "reference/norm.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

Array shifted(Array values, double offset) {
  for (double& value : values.data) value += offset;
  return values;
}

}  // namespace

void run_norm(Context& ctx, NormKind kind, const NormArgs& args) {
  kind == NormKind::layer ? layer_norm(ctx, args) : rms_norm(ctx, args);
}

std::string NormCase::text() const {
  return std::string(kind == NormKind::layer ? "layer_norm " : "rms_norm ") +
         testing::PrintToString(shape) + " " + std::string(name(dtype)) + " weight " +
         std::string(name(weight_dtype)) + " " + to_string(layout) + " residuals " +
         std::to_string(residuals) + (bias ? " bias" : "") +
         (dropout.p > 0 ? " dropout " + std::to_string(dropout.p) : "");
}

NormCall::NormCall(Context& ctx, const NormCase& c, double offset)
    : x(ctx, shifted(random_normal(c.shape, c.seed + 1), offset), c.dtype, c.layout),
      weight(ctx, random_normal({c.shape.back()}, c.seed + 2), c.weight_dtype, c.layout),
      bias(ctx, random_normal({c.shape.back()}, c.seed + 3), c.weight_dtype, c.layout),
      out(TestTensor::poisoned(ctx, c.shape, c.dtype, c.layout)),
      sum(TestTensor::poisoned(ctx, c.shape, c.dtype, c.layout)) {
  for (int i = 0; i < c.residuals; ++i) {
    residuals.emplace_back(ctx,
                           random_normal(c.shape, c.seed + 10 + static_cast<std::uint64_t>(i), 3.0),
                           c.dtype, c.layout);
    args.residuals[i] = residuals.back();
  }
  args.x = x;
  args.weight = weight;
  if (c.kind == NormKind::layer && c.bias) args.bias = bias;
  if (c.residuals > 0) args.sum = sum;
  args.dropout = c.dropout;
  args.out = out;
}

Array NormCall::expected_sum(DType dtype) const {
  std::vector<Array> added;
  for (const TestTensor& residual : residuals) added.push_back(residual.read());
  return reference::residual_sum(reference::dropped(x.read(), args.dropout, dtype), added, dtype);
}

Array NormCall::expected_out(NormKind kind, DType dtype) const {
  const Array s = expected_sum(dtype);
  if (kind == NormKind::rms) return reference::rms_norm(s, weight.read(), args.eps);
  return reference::layer_norm(s, weight.read(), args.bias.defined() ? bias.read() : Array(),
                               args.eps);
}

// One rounding to the dtype (half a unit in the last place; f16 has subnormals), on top of the
// errors of f32 arithmetic: mean and deviation have an error of a few units of the largest term,
// and each element is a difference of numbers below 12, scaled by a weight below 5.
testing::AssertionResult accurate_norm(const Array& actual, const Array& expected, DType dtype) {
  const double rounding = dtype == DType::f32 ? 0.0 : 0.51 * epsilon(dtype);
  const double subnormal = dtype == DType::f16 ? 0x1p-25 : 0.0;
  return close(actual, expected, rounding + 4 * 0x1p-23, subnormal + 16 * 0x1p-23);
}

void check_norm(Context& ctx, const NormCase& c) {
  SCOPED_TRACE(c.text());
  NormCall call(ctx, c);
  run_norm(ctx, c.kind, call.args);
  EXPECT_TRUE(accurate_norm(call.out.read(), call.expected_out(c.kind, c.dtype), c.dtype));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.x.untouched());
  if (c.residuals > 0) {
    // Bit for bit the result of separate additions.
    EXPECT_TRUE(identical(call.sum.read(), call.expected_sum(c.dtype)));
    EXPECT_TRUE(call.sum.surroundings_intact());
    for (const TestTensor& residual : call.residuals) EXPECT_TRUE(residual.untouched());
  }

  NormCall again(ctx, c);
  run_norm(ctx, c.kind, again.args);
  EXPECT_TRUE(identical(again.out.read(), call.out.read()));
}

}  // namespace tessera::test
