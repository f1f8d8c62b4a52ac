#include "support/linear_case.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "quant/e4m3.h"
#include "reference/linear.h"
#include "reference/quant.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

std::vector<std::int64_t> with_last(std::vector<std::int64_t> shape, std::int64_t last) {
  shape.push_back(last);
  return shape;
}

double element(const Tensor& tensor, std::int64_t at) {
  switch (tensor.dtype) {
    case DType::f32:
      return tensor.ptr<const float>()[at];
    case DType::f16:
      return to_float(tensor.ptr<const Half>()[at]);
    case DType::bf16:
      return to_float(tensor.ptr<const BFloat16>()[at]);
    case DType::f8e4m3:
      return e4m3_decode(tensor.ptr<const std::uint8_t>()[at]);
    case DType::i8:
      return tensor.ptr<const std::int8_t>()[at];
    default:
      return tensor.ptr<const std::uint8_t>()[at];
  }
}

// A part of a packed weight: contiguous, in host memory.
Array matrix(const Tensor& tensor) {
  Array values({tensor.shape[0], tensor.shape[1]});
  for (std::int64_t i = 0; i < values.numel(); ++i) values.data[i] = element(tensor, i);
  return values;
}

// All bytes of a weight in prepare()'s layout, whose parts are contiguous.
std::vector<unsigned char> bytes_of(Context& ctx, const Weight& weight) {
  std::vector<unsigned char> bytes;
  for (const Tensor* part : {&weight.data, &weight.scales, &weight.zeros, &weight.row_scales}) {
    std::vector<unsigned char> more(static_cast<std::size_t>(part->bytes()));
    copy_bytes(ctx, more.data(), Device::cpu(), part->data, part->device, part->bytes());
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

}  // namespace

// ---- weights ------------------------------------------------------------------------------------

std::string WeightCase::text() const {
  if (!packed) return std::string(name(dtype));
  std::string result(name(packed->format));
  if (packed->group >= 0) result += " in groups of " + std::to_string(packed->group);
  if (packed->zero_point || int8_zeros) result += " with zero points";
  if (scales) result += ", scales " + std::string(name(*scales));
  return result + (prepared ? ", prepared" : ", published");
}

std::vector<WeightCase> every_weight() {
  std::vector<QuantizeOptions> packed;
  for (const FormatInfo& format : formats()) packed.push_back({.format = format.format});
  for (std::int64_t group : {32, 64}) {
    packed.push_back({.format = Format::int4, .group = group, .zero_point = group == 64});
    packed.push_back({.format = Format::int8, .group = group});
  }
  packed.push_back({.format = Format::int4, .group = 32, .zero_point = true});
  packed.push_back({.format = Format::int8, .group = 7});  // has no tiles

  std::vector<WeightCase> variants;
  for (const QuantizeOptions& options : packed) variants.push_back({.packed = options});
  const WeightCase of_others[] = {
      {.packed = {{.format = Format::int4, .group = 128}}, .scales = DType::f32},
      {.packed = {{.format = Format::int4, .group = 96, .zero_point = true}}, .scales = DType::f16},
      {.packed = {{.format = Format::int4, .group = 0}}, .scales = DType::f16},
      {.packed = {{.format = Format::int4, .group = 16}}, .scales = DType::f32},  // has no tiles
      {.packed = {{.format = Format::int8}}, .scales = DType::bf16},
      {.packed = {{.format = Format::int8}}, .int8_zeros = true},
      {.packed = {{.format = Format::int8, .group = 128}},
       .scales = DType::f16,
       .int8_zeros = true},
      {.packed = {{.format = Format::int8, .group = 48}}, .int8_zeros = true},  // has no tiles
  };
  variants.insert(variants.end(), std::begin(of_others), std::end(of_others));

  std::vector<WeightCase> weights;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) weights.push_back({.dtype = dtype});
  for (WeightCase& variant : variants) {
    weights.push_back(variant);
    variant.prepared = true;
    weights.push_back(variant);
  }
  return weights;
}

TestWeight::TestWeight(Context& ctx, const WeightCase& how, std::int64_t out, std::int64_t in,
                       Layout layout, std::uint64_t seed)
    : ctx_(&ctx) {
  // Outputs of about one, whatever the depth.
  const Array dense = random_normal(
      {out, in}, seed, 1.0 / std::sqrt(std::max<double>(1.0, static_cast<double>(in))));
  int8_error_ = Array({out, in});
  if (!how.packed) {
    parts_.emplace_back(ctx, dense, how.dtype, layout);
    published_ = Weight::dense(parts_[0]);
    values_ = parts_[0].read();
    return;
  }
  Context cpu({.threads = 1});
  const TestTensor source(cpu, dense, DType::f32);
  PackedWeight packed = quantize(cpu, source, *how.packed);
  const Array made = matrix(packed.weight.scales);
  const TestTensor scales(cpu, made, how.scales.value_or(packed.weight.scales.dtype));
  const TestTensor zeros(cpu, random_integers(made.shape, seed, -128, 128), DType::i8);
  packed.weight.scales = scales;
  if (how.int8_zeros) packed.weight.zeros = zeros;
  if (how.adjust) how.adjust(packed.weight);
  copy_parts(packed.weight, layout);
  values_ = reference::dequantize(packed.weight);
  if (how.packed->format == Format::nf4) {
    for (std::int64_t i = 0; i < values_.numel(); ++i) {
      int8_error_.data[i] = std::abs(reference::scale_at(packed.weight, i / in, i % in)) / 254;
    }
  }
  if (how.prepared) {
    prepared_ = prepare(ctx, published_);
    prepared_bytes_ = bytes_of(ctx, prepared_.weight);
  }
}

void TestWeight::copy_parts(const Weight& weight, Layout layout) {
  published_ = weight;
  parts_.reserve(3);
  for (Tensor* part : {&published_.data, &published_.scales, &published_.zeros}) {
    if (!part->defined()) continue;
    *part = parts_.emplace_back(*ctx_, matrix(*part), part->dtype, layout);
  }
}

bool TestWeight::untouched() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part.untouched(); }) &&
         bytes_of(*ctx_, prepared_.weight) == prepared_bytes_;
}

// ---- bounds -------------------------------------------------------------------------------------

Array product_bound(const Array& x, DType x_dtype, const TestWeight& weight,
                    Activations activations, bool any_kernel) {
  const Array& w = weight.values();
  const std::int64_t depth = w.size(1), cols = w.size(0);
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < x.shape.size(); ++d) rows *= x.shape[d];
  const bool int8 =
      activations == Activations::int8 && weight.weight().layout == WeightLayout::cpu_tiles;
  const bool tiles = weight.weight().layout == WeightLayout::cuda_tiles;
  const bool rounded = weight.weight().data.device.is_cuda() && x_dtype != DType::f32 &&
                       weight.weight().format != Format::dense && (tiles || rows > 8 || any_kernel);
  const double half_unit = (tiles ? 3 : 1) * (rounded ? 0.5 * epsilon(x_dtype) : 0);
  const double half_subnormal = rounded && x_dtype == DType::f16 ? 0x1p-25 : 0;
  Array bound({rows, cols});
  std::vector<double> step(static_cast<std::size_t>(depth));  // half a step of an 8-bit activation
  for (std::int64_t m = 0; m < rows; ++m) {
    const double* x_row = x.data.data() + m * depth;
    for (std::int64_t begin = 0; int8 && begin < depth; begin += 32) {
      const std::int64_t end = std::min(depth, begin + 32);
      double largest = 0;
      for (std::int64_t k = begin; k < end; ++k) largest = std::max(largest, std::abs(x_row[k]));
      std::fill(step.begin() + begin, step.begin() + end, largest / 254);
    }
    for (std::int64_t n = 0; n < cols; ++n) {
      const double *w_row = w.row(n), *int8_error = weight.int8_error().row(n);
      double magnitude = 0, rounding = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const double a = std::abs(x_row[k]), b = std::abs(w_row[k]), e = step[k];
        magnitude += (a + e) * b;
        rounding += a * (half_unit * b + half_subnormal);
        if (int8) rounding += e * b + (a + e) * int8_error[k];
      }
      const double steps = static_cast<double>(depth + 8);
      bound.at(m, n) = rounding + steps * (0x1p-24 * (magnitude + rounding) + 0x1p-150);
    }
  }
  return bound;
}

testing::AssertionResult within(const Array& actual, const Array& expected, const Array& bound,
                                DType dtype) {
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double a = actual.data[i], e = expected.data[i];
    // Half a unit in the last place. For f32 it is part of `bound` already; f16 has subnormals.
    const double rounding = dtype == DType::f32 ? 0 : 0.51 * epsilon(dtype) * std::abs(e) + 0x1p-25;
    if (std::abs(a - e) <= bound.data[i] + rounding) continue;
    return testing::AssertionFailure()
           << "element " << i << " of " << expected.data.size() << " is " << a << ", expected " << e
           << " within " << bound.data[i] + rounding;
  }
  return testing::AssertionSuccess();
}

// ---- calls --------------------------------------------------------------------------------------

std::string LinearCase::text() const {
  return testing::PrintToString(rows) + " x " + std::to_string(in) + " -> " + std::to_string(out) +
         ", weight " + weight.text() + ", x " + std::string(name(x_dtype)) + ", out " +
         std::string(name(out_dtype)) + ", " + to_string(layout) + ", " +
         (activations == Activations::int8 ? "int8" : "exact") + ", " +
         std::string(name(activation)) + (bias ? ", bias " + std::string(name(*bias)) : "") +
         (residual ? ", residual" : "");
}

namespace {

Array activations(const LinearCase& c) {
  Array values = random_normal(with_last(c.rows, c.in), c.seed + 1);
  for (double& value : values.data) {
    value = c.x_scale * (c.x_sign > 0 ? std::abs(value) : value);
  }
  return values;
}

}  // namespace

LinearCall::LinearCall(Context& ctx, const LinearCase& how)
    : c(how),
      x(ctx, activations(c), c.x_dtype, c.layout),
      out(TestTensor::poisoned(ctx, with_last(c.rows, c.out), c.out_dtype, c.layout)),
      weight(ctx, c.weight, c.out, c.in, c.layout, c.seed + 2) {
  if (c.bias) bias.emplace(ctx, random_normal({c.out}, c.seed + 3), *c.bias, c.layout);
  if (c.residual) {
    residual.emplace(ctx, random_normal(with_last(c.rows, c.out), c.seed + 4), c.out_dtype,
                     c.layout);
  }
  ctx.set_activations(c.activations);
  args = {.x = x,
          .weight = weight.weight(),
          .bias = bias ? bias->view() : Tensor(),
          .activation = c.activation,
          .residual = residual ? residual->view() : Tensor(),
          .out = out};
}

// With LinearArgs::fixed_rows, a GPU multiplies this many tokens at a time, however few there are.
std::int64_t LinearCall::tokens_together(std::int64_t row, std::int64_t tokens) const {
  if (args.fixed_rows < 0 || tokens == 0) return tokens;
  return row < args.fixed_rows ? 64 : 256;
}

testing::AssertionResult LinearCall::correct() const {
  const Array x_values = x.read(), b = bias ? bias->read() : Array();
  const Array r = residual ? residual->read() : Array();
  const Array sums = reference::linear(x_values, weight.values(), b);
  Array expected = sums;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    expected.data[i] =
        reference::activate(c.activation, sums.data[i]) + (r.empty() ? 0.0 : r.data[i]);
  }
  Array bound = product_bound(x_values, c.x_dtype, weight, c.activations, c.any_kernel);
  const std::int64_t tokens =
      c.in == 0 ? 0 : std::ssize(x_values.data) / c.in;  // no sums, no rounding
  for (std::size_t i = 0; i < bound.data.size(); ++i) {
    const std::int64_t together = tokens_together(static_cast<std::int64_t>(i) / c.out, tokens);
    if (c.out_dtype != c.x_dtype || !may_round_sums(out.view(), together)) continue;
    const double added = b.empty() ? 0.0 : std::abs(b.data[i % b.data.size()]);
    bound.data[i] += 0.51 * epsilon(c.out_dtype) * (std::abs(sums.data[i]) + added);
  }
  for (std::size_t i = 0; i < bound.data.size(); ++i) {
    // The bias and the residual round once more. No activation is steeper than 1.13, and the error
    // of each is up to 4e-7 of its argument (cpu/simd/activation_test.cc).
    const double z = std::abs(sums.data[i]) + bound.data[i];
    bound.data[i] = 1.13 * bound.data[i] + 4e-7 * z + 0x1p-23 * (z + std::abs(expected.data[i]));
  }
  // cuBLASLt may round to the output's dtype between two addends (seen at one token and depth 1).
  if (c.any_kernel && bias && residual && out.view().device.is_cuda()) {
    for (std::size_t i = 0; i < bound.data.size(); ++i) {
      bound.data[i] += 0.51 * epsilon(c.out_dtype) * (std::abs(sums.data[i]) + std::abs(r.data[i]));
    }
  }
  if (auto good = within(out.read(), expected, bound, c.out_dtype); !good) return good;
  if (!out.surroundings_intact()) return testing::AssertionFailure() << "wrote outside out";
  const bool inputs_intact = x.untouched() && weight.untouched() && (!bias || bias->untouched()) &&
                             (!residual || residual->untouched());
  if (!inputs_intact) return testing::AssertionFailure() << "wrote to an input";
  return testing::AssertionSuccess();
}

void check_linear(Context& ctx, const LinearCase& c) {
  SCOPED_TRACE(c.text());
  LinearCall call(ctx, c), again(ctx, c);
  linear(ctx, call.args);
  EXPECT_TRUE(call.correct());
  linear(ctx, again.args);
  EXPECT_TRUE(identical(again.out.read(), call.out.read()));
}

}  // namespace tessera::test
