// What linear() and the codecs do on a GPU and nowhere else: which kernel runs, the same bits as
// the CPU's decoder, and the layout that belongs to the CPU.
#include "tessera/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/half.h"
#include "cuda/attention/hopper.h"
#include "cuda/linear/repack.h"
#include "cuda/linear/tile_sizes.h"
#include "cuda/state.h"
#include "quant/cases.h"
#include "quant/codec.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_case.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

class CudaLinearTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaLinearTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaLinearTest, TraceTellsTheKernel) {
  const std::optional<QuantizeOptions> nvfp4{{.format = Format::nvfp4}};
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
      {{.packed = nvfp4, .prepared = true}, DType::f16, 16, "cuda.stream"},
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

// More rows and columns than one block of any kernel, in every dtype, with the library writing the
// output itself.
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

// One row that all rows of x share, and rows that overlap: no stride that the library takes.
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

// ---- weights in tiles ---------------------------------------------------------------------------

// Every weight that has tiles, prepared.
std::vector<WeightCase> tiled_weights() {
  std::vector<WeightCase> weights;
  for (const WeightCase& weight : every_weight()) {
    if (!weight.prepared) continue;
    const QuantizeOptions& packed = *weight.packed;
    const std::int64_t group = packed.group >= 0 ? packed.group : info(packed.format).default_group;
    if (cuda::has_tiles(packed.format, group)) weights.push_back(weight);
  }
  return weights;
}

// Back and forth: not a bit is lost, whatever the sizes, and the rest of a tile is no matter.
TEST_P(CudaLinearTest, TilesHoldThePublishedBits) {
  for (const WeightCase& how : tiled_weights()) {
    for (std::int64_t out : {1, 16, 37}) {
      for (std::int64_t in : {1, 63, 128, 239}) {
        SCOPED_TRACE(how.text() + " " + std::to_string(out) + " x " + std::to_string(in));
        WeightCase published = how;
        published.prepared = false;
        const TestWeight original(ctx(), published, out, in, Layout::sliced);
        ctx().trace().clear();
        const PackedWeight tiled = prepare(ctx(), original.weight());
        ASSERT_EQ(ctx().trace().calls("prepare", "cuda.tiles"), 1);
        ASSERT_EQ(tiled.weight.layout, WeightLayout::cuda_tiles);
        const TestWeight other(ctx(), published, out, in, Layout::contiguous, /*seed=*/9);
        Weight back = other.weight();
        back.tensor_scale = original.weight().tensor_scale;
        const std::int64_t blocks = back.scales.shape[1];
        const TestTensor scales = TestTensor::poisoned(ctx(), {out, blocks}, DType::f32);
        if (tiled.weight.scales.dtype == DType::f32) back.scales = scales;
        cuda::unpack(ctx(), tiled.weight, back);
        const TestTensor a = TestTensor::poisoned(ctx(), {out, in}, DType::f32);
        const TestTensor b = TestTensor::poisoned(ctx(), {out, in}, DType::f32);
        dequantize(ctx(), original.weight(), a);
        dequantize(ctx(), back, b);
        EXPECT_TRUE(identical(a.read(), b.read()));
        EXPECT_TRUE(original.untouched());
      }
    }
  }
}

TEST_P(CudaLinearTest, PrepareCopiesWhatHasNoTiles) {
  for (Layout layout : kLayouts) {
    const TestWeight weight(ctx(), {.packed = {{.format = Format::int8, .group = 7}}}, 17, 113,
                            layout);
    ctx().trace().clear();
    const PackedWeight prepared = prepare(ctx(), weight.weight());
    EXPECT_EQ(ctx().trace().calls("prepare", "cuda.copy"), 1);
    EXPECT_TRUE(prepared.weight.data.is_contiguous());
    const TestTensor a = TestTensor::poisoned(ctx(), {17, 113}, DType::f32);
    const TestTensor b = TestTensor::poisoned(ctx(), {17, 113}, DType::f32);
    dequantize(ctx(), weight.weight(), a);
    dequantize(ctx(), prepared.weight, b);
    EXPECT_TRUE(identical(a.read(), b.read()));
  }
}

// Around the borders of tiles, slabs, blocks and what a warp takes; fewer slabs than warps and more
// tiles than blocks.
TEST_P(CudaLinearTest, StreamedSizes) {
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {1, 3, 8, 13}) {
        for (std::int64_t in : {1, 63, 64, 129, 513}) {
          check_linear(ctx(), {.rows = {rows}, .in = in, .weight = weight, .x_dtype = dtype});
        }
        for (std::int64_t out : {1, 16, 33, 81}) {
          check_linear(ctx(),
                       {.rows = {rows}, .in = 80, .out = out, .weight = weight, .x_dtype = dtype});
        }
      }
    }
  }
  EXPECT_GT(ctx().trace().calls("linear", "cuda.stream"), 0);
  EXPECT_EQ(ctx().trace().calls("linear", "cuda.plain.decode"), 0);
}

// More activations than shared memory holds: 16 rows, and 8 of them; whole pairs and parts of one.
TEST_P(CudaLinearTest, StreamedActivationsInChunks) {
  for (const WeightCase& weight :
       {WeightCase{.packed = {{.format = Format::nvfp4}}, .prepared = true},
        WeightCase{.packed = {{.format = Format::int4, .group = 128, .zero_point = true}},
        .prepared = true},
        WeightCase{.packed = {{.format = Format::fp8}}, .prepared = true}}) {
    check_linear(ctx(), {.rows = {16},
                         .in = 8200,
                         .out = 33,
                         .weight = weight,
                         .x_dtype = DType::bf16,
                         .activation = Activation::gelu,
                         .bias = DType::f32,
                         .residual = true});
    check_linear(ctx(),
                 {.rows = {8}, .in = 14336, .out = 17, .weight = weight, .x_dtype = DType::f16});
  }
  EXPECT_GT(ctx().trace().calls("linear", "cuda.stream"), 0);
  EXPECT_EQ(ctx().trace().calls("linear"), ctx().trace().calls("linear", "cuda.stream"));
}

TEST_P(CudaLinearTest, StreamedLayoutsAndEpilogues) {
  for (const WeightCase& weight :
       {WeightCase{.packed = {{.format = Format::nvfp4}}, .prepared = true},
        WeightCase{.dtype = DType::f16}}) {
    for (Layout layout : kLayouts) {
      for (Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                    Activation::gelu_tanh, Activation::silu}) {
        for (DType out_dtype : {DType::f32, DType::f16, DType::bf16}) {
          check_linear(ctx(), {.rows = {2, 3},
                               .in = 192,
                               .out = 50,
                               .weight = weight,
                               .x_dtype = DType::f16,
                               .out_dtype = out_dtype,
                               .layout = layout,
                               .activation = activation,
                               .bias = DType::bf16,
                               .residual = true});
        }
      }
    }
  }
}

// Around the borders of tiles, panels, pairs of slabs and blocks of tokens. On Hopper it is another
// kernel than elsewhere.
TEST_P(CudaLinearTest, ManyRows) {
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {9, 16, 17, 130}) {
        check_linear(ctx(),
                     {.rows = {rows}, .in = 200, .out = 37, .weight = weight, .x_dtype = dtype});
      }
    }
  }
  for (const WeightCase& weight : tiled_weights()) {  // decoded once
    for (std::int64_t in : {37, 200}) {
      check_linear(ctx(),
                   {.rows = {1030}, .in = in, .out = 20, .weight = weight, .x_dtype = DType::f16});
    }
  }
  for (std::int64_t in : {1, 128, 129, 1024, 2100}) {
    for (std::int64_t out : {1, 128, 129, 300}) {
      check_linear(ctx(), {.rows = {20},
                           .in = in,
                           .out = out,
                           .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                           .x_dtype = DType::bf16,
                           .out_dtype = DType::bf16,
                           .layout = Layout::sliced,
                           .activation = Activation::gelu,
                           .bias = DType::f16,
                           .residual = true});
    }
  }
}

// What cuda.panels does with more tiles than blocks, and with fewer: parts of a tile are added up
// in the same order each time.
TEST_P(CudaLinearTest, BlocksOfPanelsShareTiles) {
  if (!cuda::has_hopper_kernels(ctx().cuda_state().limits())) GTEST_SKIP() << "no Hopper GPU";
  const struct {
    std::int64_t rows, in, out;
  } sizes[] = {
      {64, 4000, 600},   // a tile in four or five parts
      {65, 1500, 300},   // in three
      {300, 40, 12800},  // a pair for each block, and a few more
      {440, 40, 17200},  // whole tiles first
      {130, 40, 33700},  // as many tiles as two rounds take
  };
  for (const auto& size : sizes) {
    LinearCall call(ctx(), {.rows = {size.rows},
                            .in = size.in,
                            .out = size.out,
                            .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                            .x_dtype = DType::bf16,
                            .out_dtype = DType::bf16});
    ctx().trace().clear();
    linear(ctx(), call.args);
    EXPECT_TRUE(call.correct());
    const Array first = call.out.read();
    for (int i = 0; i < 3; ++i) {
      linear(ctx(), call.args);
      EXPECT_TRUE(identical(call.out.read(), first));
    }
    EXPECT_EQ(ctx().trace().calls("linear", "cuda.panels"), 4);
  }
}

// The ways out of a tile: every dtype and layout of the output, with and without what is added.
TEST_P(CudaLinearTest, EpiloguesOfManyRows) {
  for (std::int64_t rows : {33, 70}) {
    for (Layout layout : kLayouts) {
      for (Activation activation : {Activation::none, Activation::silu}) {
        for (DType out_dtype : {DType::f32, DType::f16, DType::bf16}) {
          for (std::int64_t out : {49, 50, 56}) {  // singly, in twos, in eights
            check_linear(ctx(), {.rows = {rows},
                                 .in = 192,
                                 .out = out,
                                 .weight = {.packed = {{.format = Format::int4, .group = 32}},
                                            .prepared = true},
                                 .x_dtype = DType::f16,
                                 .out_dtype = out_dtype,
                                 .layout = layout,
                                 .activation = activation,
                                 .bias = DType::bf16,
                                 .residual = activation == Activation::silu});
          }
        }
      }
    }
  }
}

// As LinearPacked.UnusualScales for the CPU: scales far from what T can hold, with activations in
// T.
TEST_P(CudaLinearTest, StreamedUnusualScales) {
  const auto check_rows = [&](std::int64_t rows, Format format,
                              const std::function<void(Weight&)>& adjust) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      check_linear(ctx(),
                   {.rows = {rows},
                    .in = 140,
                    .out = 18,
                    .weight = {.packed = {{.format = format}}, .prepared = true, .adjust = adjust},
                    .x_dtype = dtype});
    }
  };
  const auto check = [&](Format format, const std::function<void(Weight&)>& adjust) {
    check_rows(2, format, adjust);
    check_rows(12, format, adjust);
  };
  const auto set_bytes = [](int code) {
    return [code](const Weight& weight) {
      std::fill_n(weight.scales.ptr<std::uint8_t>(), weight.scales.numel(),
                  static_cast<std::uint8_t>(code));
    };
  };
  for (int code : {0, 1, 7, 8, 56, 126, 129, 200, 254}) check(Format::nvfp4, set_bytes(code));
  for (int code : {0, 1, 2, 30, 127, 200, 219, 230, 244}) check(Format::mxfp4, set_bytes(code));
  for (float scale : {1e-34f, 1e-10f, 7.f, 1e34f}) {
    check(Format::nvfp4, [scale](Weight& weight) { weight.tensor_scale = scale; });
  }
  for (float factor : {-1.f, 1e-30f, 1e30f}) {
    for (Format format : {Format::nf4, Format::int4, Format::int8, Format::fp8}) {
      check(format, [factor](Weight& weight) {
        for (std::int64_t i = 0; i < weight.scales.numel(); ++i) {
          if (weight.scales.dtype == DType::f32) {
            weight.scales.ptr<float>()[i] *= factor;
          } else {
            BFloat16& scale = weight.scales.ptr<BFloat16>()[i];
            scale = to_bf16(to_float(scale) * factor);
          }
        }
      });
    }
  }
}

// The fast decoders know no NaN: the scale of the row stands for it.
TEST_P(CudaLinearTest, StreamedNanReachesItsRow) {
  const auto check = [&](Format format, std::size_t byte, int nan) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      LinearCall call(
          ctx(), {.rows = {2},
                  .in = 112,
                  .weight = {.packed = {{.format = format}},
                             .prepared = true,
                             .adjust =
                                 [&](Weight& weight) {
                                   const Tensor& part =
                                       format == Format::fp8 ? weight.data : weight.scales;
                                   part.ptr<std::uint8_t>()[byte] = static_cast<std::uint8_t>(nan);
                                 }},
                  .x_dtype = dtype});
      linear(ctx(), call.args);
      const Array out = call.out.read();
      for (std::int64_t n = 0; n < 17; ++n) EXPECT_EQ(std::isnan(out.at(1, n)), n == 1) << n;
    }
  };
  check(Format::fp8, 112 + 100, 0xff);
  check(Format::nvfp4, 7 + 3, 0x7f);
  check(Format::mxfp4, 4 + 2, 0xff);
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
                                 random_normal({67, 512}, 3, 1e-3), Array({3, 40}),
                                 random_integers({9, 300}, 4, -20, 20)};
  Array extremes = random_normal({6, 140}, 5);
  for (std::int64_t k = 0; k < 140; k += 3) {
    extremes.at(1, k) = 3.3e38;  // finite in bf16 too
    extremes.at(2, k) = -1e-44;
    extremes.at(3, k) = 1e-38;
    extremes.at(4, k) = 0;
  }
  matrices.push_back(extremes);
  Context cpu({.threads = 1});
  for (const Array& values : matrices) {
    for (const QuantizeOptions& options : every_way()) {
      for (Layout layout : kLayouts) {
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
