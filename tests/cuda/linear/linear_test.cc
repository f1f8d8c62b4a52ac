// What linear() and the codecs do on a GPU and nowhere else: which kernel runs, the same bits as
// the CPU's decoder, and the layout that belongs to the CPU.
#include "tessera/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quant/cases.h"
#include "quant/codec.h"
#include "reference/linear.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_case.h"
#include "support/refusal.h"
#include "support/sanitizers.h"

namespace tessera::test {
namespace {

class CudaLinearTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaLinearTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaLinearTest, TraceTellsTheKernel) {
  const std::optional<QuantizeOptions> nvfp4{{.format = Format::nvfp4}};
  const WeightCase int8_in_groups{.packed = {{.format = Format::int8, .group = 64}},
                                  .prepared = true};
  const struct {
    WeightCase weight;
    DType x;
    std::int64_t rows;
    const char* kernel;
  } rows[] = {
      {{.dtype = DType::f32}, DType::f32, 1, "cuda.cublaslt"},
      {{.dtype = DType::bf16}, DType::bf16, 64, "cuda.cublaslt"},
      {{.dtype = DType::f16}, DType::f32, 8, "cuda.plain.decode"},
      {{.dtype = DType::f16}, DType::f32, 9, "cuda.cublaslt"},
      {{.packed = nvfp4}, DType::f16, 8, "cuda.plain.decode"},
      {{.packed = nvfp4}, DType::f16, 9, "cuda.cublaslt"},
      {{.packed = nvfp4, .prepared = true}, DType::f16, 4, "cuda.stream"},
      {int8_in_groups, DType::f16, 40, "cuda.mma"},  // whatever else there is on Hopper
      {{.packed = nvfp4, .prepared = true}, DType::f32, 1, "cuda.plain.decode"},
  };
  for (const auto& row : rows) {
    LinearCall call(ctx(), {.rows = {row.rows}, .weight = row.weight, .x_dtype = row.x});
    ctx().trace().clear();
    linear(ctx(), call.args);
    EXPECT_TRUE(call.correct());
    EXPECT_EQ(ctx().trace().calls("linear", row.kernel), 1) << row.kernel;
  }
}

// With a weight of one. The error is relative, also where values are small: tails are not computed
// as differences from 1.
TEST_P(CudaLinearTest, ActivationsAreExactInTheirTails) {
  Array values({601, 1}), one({1, 1});
  for (std::int64_t i = 0; i < 601; ++i) values.at(i, 0) = static_cast<double>(i) / 32 - 9.5;
  one.at(0, 0) = 1;
  const TestTensor x(ctx(), values, DType::f32), weight(ctx(), one, DType::f32);
  for (Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    const TestTensor out = TestTensor::poisoned(ctx(), {601, 1}, DType::f32);
    linear(ctx(), {.x = x.view(),
                   .weight = Weight::dense(weight.view()),
                   .activation = activation,
                   .out = out.view()});
    const Array expected = reference::linear(x.read(), one, {}, activation);
    EXPECT_TRUE(close(out.read(), expected, 1e-5, 1e-14)) << static_cast<int>(activation);
  }
}

// More tokens and features than one block of any kernel, in every dtype, with the library writing
// the output itself.
TEST_P(CudaLinearTest, LargerProducts) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (std::int64_t rows : {1, 129}) {
      for (const WeightCase& weight :
           {WeightCase{.dtype = dtype}, WeightCase{.packed = {{.format = Format::int4}}}}) {
        check_linear(ctx(), {.rows = {rows},
                             .in = 1024,
                             .out = 520,
                             .weight = weight,
                             .x_dtype = dtype,
                             .out_dtype = dtype});
      }
    }
  }
}

// cuBLASLt adds a bias and a residual of the output's dtype itself if all lie on its boundaries.
// Anything else is added in a pass of its own.
TEST_P(CudaLinearTest, BiasAndResidualOfTheOutputsDtype) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (std::int64_t out : {520, 517}) {
      for (bool residual : {false, true}) {
        for (Activation activation : {Activation::none, Activation::relu}) {
          const LinearCase c{.rows = {129},
                             .in = 264,
                             .out = out,
                             .weight = {.dtype = dtype},
                             .x_dtype = dtype,
                             .out_dtype = dtype,
                             .activation = activation,
                             .bias = dtype,
                             .residual = residual};
          check_linear(ctx(), c);
          if (!residual) continue;
          LinearCall apart(ctx(), c), in_place(ctx(), c);
          linear(ctx(), apart.args);
          in_place.args.out = *in_place.residual;
          linear(ctx(), in_place.args);
          // The library may add in another order there.
          const Array here = in_place.residual->read(), there = apart.out.read();
          for (std::size_t i = 0; i < here.data.size(); ++i) {
            ASSERT_NEAR(here.data[i], there.data[i], 0.01 * (1 + std::abs(there.data[i])));
          }
        }
      }
    }
  }
  EXPECT_EQ(ctx().trace().calls("linear"), ctx().trace().calls("linear", "cuda.cublaslt"));
}

// One row of memory that all tokens share, and rows that overlap: no stride that the library takes.
TEST_P(CudaLinearTest, RowsThatOverlapAreCopied) {
  for (std::int64_t stride : {0, 5}) {
    LinearCall call(ctx(), {.rows = {20}});
    LinearCall plain(ctx(), {.rows = {20}});
    Array values({20, 113});
    const Array x = call.x.read();
    for (std::int64_t m = 0; m < 20; ++m) {
      for (std::int64_t k = 0; k < 113; ++k) {
        values.at(m, k) = x.data[static_cast<std::size_t>(m * stride + k)];
      }
    }
    const TestTensor copied(ctx(), values, DType::f32);
    call.args.x.strides[0] = stride;
    plain.args.x = copied;
    linear(ctx(), call.args);
    linear(ctx(), plain.args);
    EXPECT_TRUE(identical(call.out.read(), plain.out.read()));
  }
}

TEST_P(CudaLinearTest, RefusesTheTilesOfTheCpu) {
  LinearCall call(ctx(), {.weight = {.packed = {{.format = Format::nvfp4}}}});
  call.args.weight.layout = WeightLayout::cpu_tiles;
  EXPECT_TRUE(
      refuses([&] { linear(ctx(), call.args); },
              "linear: weight is in the layout cpu_tiles; give it in the published layout"));
  EXPECT_TRUE(call.out.untouched());
}

// Tiles have their scales in f32, whatever the weight had them in.
TEST_P(CudaLinearTest, RefusesTilesWithScalesOfAnotherDtype) {
  LinearCall call(ctx(), {.weight = {.packed = {{.format = Format::int4}}, .prepared = true}});
  call.args.weight.scales.dtype = DType::bf16;
  EXPECT_TRUE(
      refuses([&] { linear(ctx(), call.args); }, "linear: weight.scales is bf16; accepted: f32"));
  EXPECT_TRUE(call.out.untouched());
}

// ---- the same bits as the CPU -------------------------------------------------------------------

testing::AssertionResult same_bits(const Array& a, const Array& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const double x = a.data[i], y = b.data[i];
    if (std::isnan(x) && std::isnan(y)) continue;  // E4M3 has codes of NaN
    if (x == y && std::signbit(x) == std::signbit(y)) continue;
    return testing::AssertionFailure() << "element " << i << ": " << x << " and " << y;
  }
  return testing::AssertionSuccess();
}

// A weight of every code and of scales from subnormal to huge.
struct RandomWeight {
  RandomWeight(Context& ctx, Format format, std::int64_t group, bool zero_point,
               DType scale_dtype) {
    constexpr std::int64_t kRows = 64, kColumns = 513;
    const std::int64_t blocks = quant::blocks_of_row(group, kColumns);
    const bool byte_scales = size_of(scale_dtype) == 1;
    Array scale_values = byte_scales ? random_integers({kRows, blocks}, 2, 0, 127)
                                     : random_normal({kRows, blocks}, 2);
    if (!byte_scales) {
      for (std::size_t i = 0; i < scale_values.data.size(); ++i) {
        const int exponent = static_cast<int>(i * 37 % 240) - 130;
        scale_values.data[i] *= std::exp2(scale_dtype == DType::f16 ? exponent / 10 : exponent);
      }
    }
    const std::int64_t row_bytes = quant::row_bytes(format, kColumns);
    data.emplace(ctx, random_integers({kRows, row_bytes}, 1, 0, 256), DType::u8);
    scales.emplace(ctx, scale_values, byte_scales ? DType::u8 : scale_dtype);
    const bool wide = format == Format::int8;
    zeros.emplace(ctx, random_integers({kRows, blocks}, 3, wide ? -128 : 0, wide ? 128 : 16),
                  wide ? DType::i8 : DType::u8);
    weight = {.format = format,
              .out_features = kRows,
              .in_features = kColumns,
              .group = group,
              .data = *data,
              .scales = *scales,
              .tensor_scale = format == Format::nvfp4 ? 0.0123f : 1.f};
    weight.data.dtype = quant::code_dtype(format);
    weight.scales.dtype = scale_dtype;
    if (zero_point) weight.zeros = *zeros;
  }

  std::optional<TestTensor> data, scales, zeros;
  Weight weight;
};

TEST_P(CudaLinearTest, DecodesTheBitsOfTheCpu) {
  const struct {
    Format format;
    std::int64_t group;
    DType scales;
    bool zero_point = false;
  } rows[] = {{Format::nvfp4, 16, DType::f8e4m3},     {Format::mxfp4, 32, DType::u8},
              {Format::nf4, 64, DType::f32},          {Format::int4, 32, DType::bf16},
              {Format::int4, 128, DType::bf16, true}, {Format::int4, 48, DType::f16, true},
              {Format::int4, 0, DType::f32},          {Format::int8, 0, DType::f32},
              {Format::int8, 7, DType::f32},          {Format::int8, 128, DType::bf16, true},
              {Format::int8, 0, DType::f16, true},    {Format::fp8, 0, DType::f32}};
  Context cpu({.threads = 1});
  for (const auto& row : rows) {
    const RandomWeight here(cpu, row.format, row.group, row.zero_point, row.scales);
    const RandomWeight there(ctx(), row.format, row.group, row.zero_point, row.scales);
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(std::string(name(row.format)) + " to " + std::string(name(dtype)));
      const TestTensor expected = TestTensor::poisoned(cpu, {64, 513}, dtype);
      const TestTensor actual = TestTensor::poisoned(ctx(), {64, 513}, dtype);
      dequantize(cpu, here.weight, expected);
      dequantize(ctx(), there.weight, actual);
      EXPECT_TRUE(same_bits(actual.read(), expected.read()));
    }
  }
}

// All bytes of codes, scales and zero points that quantize() made, and the tensor scale.
std::vector<unsigned char> downloaded(Context& ctx, const PackedWeight& packed) {
  Weight weight = packed.weight;
  std::vector<std::vector<unsigned char>> parts;
  for (Tensor* part : {&weight.data, &weight.scales, &weight.zeros}) {
    auto& bytes = parts.emplace_back(static_cast<std::size_t>(part->bytes()));
    copy_bytes(ctx, bytes.data(), Device::cpu(), part->data, part->device, part->bytes());
    part->data = bytes.data();
  }
  return bytes_of(weight);
}

TEST_P(CudaLinearTest, EncodesTheBitsOfTheCpu) {
  std::vector<Array> matrices = {random_normal({1, 1}, 1), random_normal({5, 239}, 2),
                                 random_normal({kSanitized ? 21 : 67, 512}, 3, 1e-3),
                                 Array({3, 40}), random_integers({9, 300}, 4, -20, 20)};
  Array extremes = random_normal({6, 140}, 5);
  for (std::int64_t k = 0; k < 140; k += 3) {
    extremes.at(1, k) = 3.3e38;  // finite in bf16 too
    extremes.at(2, k) = -1e-44;
    extremes.at(3, k) = 1e-38;
    extremes.at(4, k) = 0;
  }
  matrices.push_back(extremes);
  Thinned thinned(2);
  Context cpu({.threads = 1});
  for (const Array& values : matrices) {
    for (const QuantizeOptions& options : every_way()) {
      for (Layout layout : kLayouts) {
        if (!thinned.takes_next()) continue;
        const DType dtype = layout == Layout::sliced ? DType::bf16 : DType::f32;
        SCOPED_TRACE(text(options) + " " + testing::PrintToString(values.shape));
        const TestTensor here(cpu, values, dtype), there(ctx(), values, dtype, layout);
        ASSERT_EQ(downloaded(ctx(), quantize(ctx(), there, options)),
                  downloaded(cpu, quantize(cpu, here, options)));
        ASSERT_TRUE(there.untouched());
      }
    }
  }
  EXPECT_GT(ctx().trace().calls("quantize", "cuda"), 0);
}

TEST_P(CudaLinearTest, EncodingRefusesWhatIsNotFinite) {
  Array values = random_normal({4, 37}, 9);
  values.at(2, 36) = -INFINITY;
  values.at(3, 0) = NAN;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const TestTensor dense(ctx(), values, dtype, Layout::sliced);
    EXPECT_TRUE(refuses([&] { quantize(ctx(), dense, {}); },
                        "quantize: dense[2, 36] is -inf; only finite weights can be packed"));
  }
  EXPECT_EQ(ctx().trace().calls("quantize"), 0);
}

}  // namespace
}  // namespace tessera::test
