#include "tessera/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "reference/linear.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr Activation kEpilogues[] = {Activation::none, Activation::relu, Activation::gelu,
                                     Activation::gelu_tanh, Activation::silu};
// Numbers of tokens (M) on both sides of every border: where the CPU changes kernels (36) and the
// GPU does (8), the groups of tokens in the kernels (4, 6, 12), and several tiles.
constexpr std::int64_t kLinearRows[] = {1, 2, 3, 5, 8, 9, 13, 36, 37, 45, 113};

std::unique_ptr<Context> linear_context(int threads = 2) {
  return std::make_unique<Context>(ContextOptions{.threads = threads, .trace = true});
}

class LinearTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LinearTest, testing::ValuesIn(test_devices()), device_name);

// ---- dense weights ------------------------------------------------------------------------------

TEST_P(LinearTest, OddSizes) {
  for (std::int64_t rows : kLinearRows) {
    for (std::int64_t in : {1, 3, 17, 239, 600}) {
      for (std::int64_t out : {1, 3, 33, 113}) {
        check_linear(ctx(),
                     {.rows = {rows}, .in = in, .out = out, .bias = DType::f32, .residual = true});
      }
    }
  }
}

TEST_P(LinearTest, DtypesAndLayouts) {
  for (DType x : kFloats) {
    for (DType weight : kFloats) {
      for (DType out : kFloats) {
        for (Layout layout : kLayouts) {
          for (std::int64_t rows : {1, 20}) {
            check_linear(ctx(), {.rows = {rows, 2},
                                 .weight = {.dtype = weight},
                                 .x_dtype = x,
                                 .out_dtype = out,
                                 .layout = layout,
                                 .bias = weight,
                                 .residual = true});
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, ActivationsBiasAndResidual) {
  for (Activation activation : kEpilogues) {
    for (DType bias : kFloats) {
      for (bool residual : {false, true}) {
        check_linear(
            ctx(),
            {.rows = {7}, .out = 70, .activation = activation, .bias = bias, .residual = residual});
      }
    }
  }
}

TEST_P(LinearTest, Ranks) {
  for (const std::vector<std::int64_t>& rows :
       std::vector<std::vector<std::int64_t>>{{}, {1}, {2, 3}, {2, 1, 3}, {2, 2, 1, 2, 2}}) {
    check_linear(ctx(), {.rows = rows, .layout = Layout::permuted, .residual = true});
  }
}

// More tokens than one tile holds, and more output features than one task.
TEST_P(LinearTest, ManyTiles) {
  check_linear(ctx(), {.rows = {799}, .in = 70, .out = 130, .bias = DType::f32});
  check_linear(ctx(), {.rows = {200},
                       .in = 70,
                       .out = 130,
                       .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                       .activations = Activations::int8});
}

TEST_P(LinearTest, ResidualMayBeTheOutput) {
  for (Layout layout : kLayouts) {
    const LinearCase c{
        .rows = {5, 3}, .out_dtype = DType::bf16, .layout = layout, .residual = true};
    LinearCall apart(ctx(), c), in_place(ctx(), c);
    linear(ctx(), apart.args);
    in_place.args.out = *in_place.residual;
    linear(ctx(), in_place.args);
    EXPECT_TRUE(identical(in_place.residual->read(), apart.out.read()));
    EXPECT_TRUE(in_place.residual->surroundings_intact());
    EXPECT_TRUE(in_place.out.untouched());
  }
}

// A GPU multiplies rows behind the fixed ones 256 at a time, however few there are, and rounds
// their sums as those of many. At depth 1 nothing else is as large as that rounding.
TEST_P(LinearTest, FixedRowsAndThoseBehindThem) {
  for (const std::int64_t in : {1, 40}) {
    for (const std::int64_t fixed_rows : {0, 2, 5}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        LinearCall call(ctx(), {.rows = {5},
                                .in = in,
                                .out = 48,
                                .weight = {.dtype = DType::bf16},
                                .x_dtype = DType::bf16,
                                .out_dtype = DType::bf16,
                                .activation = Activation::relu,
                                .bias = DType::bf16,
                                .residual = true,
                                .seed = 100 * seed});
        SCOPED_TRACE(call.c.text() + ", fixed rows " + std::to_string(fixed_rows));
        call.args.fixed_rows = fixed_rows;
        linear(ctx(), call.args);
        EXPECT_TRUE(call.correct());
      }
    }
  }
}

TEST_P(LinearTest, NothingToSumOverLeavesBiasAndResidual) {
  for (std::int64_t rows : {1, 41}) {
    check_linear(ctx(), {.rows = {rows},
                         .in = 0,
                         .activation = Activation::gelu,
                         .bias = DType::f32,
                         .residual = true});
  }
}

TEST_P(LinearTest, EmptyOutputsAreNoWork) {
  const WeightCase tiles{.packed = {{.format = Format::nvfp4}}, .prepared = true};
  for (const LinearCase& c :
       {LinearCase{.rows = {0}}, LinearCase{.rows = {2, 0, 3}}, LinearCase{.out = 0},
        LinearCase{.rows = {0}, .weight = tiles, .activations = Activations::int8}}) {
    LinearCall call(ctx(), c);
    linear(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
  }
}

TEST_P(LinearTest, NanStaysInItsRow) {
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (Activations activations : {Activations::exact, Activations::int8}) {
      for (std::int64_t rows : {3, 41}) {
        LinearCall call(ctx(), {.rows = {rows},
                                .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                                .activations = activations});
        Array values = call.x.read();
        values.at(1, 57) = bad;
        const TestTensor x(ctx(), values, DType::f32);
        call.args.x = x;
        linear(ctx(), call.args);
        const Array out = call.out.read();
        for (std::int64_t n = 0; n < 17; ++n) {
          EXPECT_TRUE(std::isfinite(out.at(0, n)));
          EXPECT_FALSE(std::isfinite(out.at(1, n)));
          EXPECT_TRUE(std::isfinite(out.at(2, n)));
        }
      }
    }
  }
}

TEST(Linear, SameBitsForAnyThreadCount) {
  for (const WeightCase& weight : every_weight()) {
    for (std::int64_t rows : {1, 100}) {
      const LinearCase c{.rows = {rows},
                         .in = 239,
                         .out = 300,
                         .weight = weight,
                         .activations = Activations::int8};
      SCOPED_TRACE(c.text());
      const auto one = linear_context(1), three = linear_context(3);
      LinearCall a(*one, c), b(*three, c);
      linear(*one, a.args);
      linear(*three, b.args);
      EXPECT_TRUE(identical(a.out.read(), b.out.read()));
    }
  }
}

// ---- the trace ----------------------------------------------------------------------------------

TEST(Linear, TraceTellsTheKernel) {
  struct Row {
    WeightCase weight;
    std::int64_t rows;
    Activations activations;
    const char* kernel;
  };
  const std::optional<QuantizeOptions> nvfp4{{.format = Format::nvfp4}},
      fp8{{.format = Format::fp8}}, int8_by_7{{.format = Format::int8, .group = 7}};
  const Row rows[] = {
      {{.dtype = DType::f32}, 1, Activations::exact, "cpu.gemv.f32"},
      {{.dtype = DType::f16}, 1, Activations::exact, "cpu.gemv.f16"},
      {{.dtype = DType::bf16}, 1, Activations::int8, "cpu.gemv.bf16"},
      {{.dtype = DType::f32}, 64, Activations::int8, "cpu.gemm.f32"},
      {{.dtype = DType::f16}, 64, Activations::exact, "cpu.gemm.f16"},
      {{.dtype = DType::bf16}, 64, Activations::exact, "cpu.gemm.bf16"},
      {{.packed = fp8}, 1, Activations::exact, "cpu.gemv.fp8"},
      {{.packed = fp8, .prepared = true}, 64, Activations::int8, "cpu.gemm.fp8"},
      {{.packed = nvfp4}, 1, Activations::exact, "cpu.decode.exact"},
      {{.packed = nvfp4}, 1, Activations::int8, "cpu.decode.exact"},
      {{.packed = nvfp4}, 64, Activations::int8, "cpu.decode.exact"},
      {{.packed = nvfp4, .prepared = true}, 1, Activations::exact, "cpu.tiles.exact"},
      {{.packed = nvfp4, .prepared = true}, 64, Activations::exact, "cpu.tiles.exact"},
      {{.packed = nvfp4, .prepared = true}, 1, Activations::int8, "cpu.tiles.int8"},
      {{.packed = nvfp4, .prepared = true}, 64, Activations::int8, "cpu.tiles.int8"},
      {{.packed = int8_by_7, .prepared = true}, 1, Activations::int8, "cpu.decode.exact"},
  };
  for (const Row& row : rows) {
    const auto ctx = linear_context();
    LinearCall call(*ctx,
                    {.rows = {row.rows}, .weight = row.weight, .activations = row.activations});
    ctx->trace().clear();
    linear(*ctx, call.args);
    ASSERT_EQ(ctx->trace().entries().size(), 1u);
    EXPECT_EQ(ctx->trace().entries()[0].op, "linear");
    EXPECT_EQ(ctx->trace().entries()[0].kernel, row.kernel);
  }
}

TEST_P(LinearTest, TraceCountsBytesAndFlops) {
  LinearCall call(ctx(), {.rows = {2, 3},
                          .in = 128,
                          .out = 32,
                          .weight = {.packed = {{.format = Format::nvfp4}}, .prepared = true},
                          .out_dtype = DType::f16,
                          .bias = DType::f32,
                          .residual = true});
  ctx().trace().clear();
  linear(ctx(), call.args);
  const TraceEntry& entry = ctx().trace().entries()[0];
  EXPECT_EQ(entry.shapes, "x f32[2, 3, 128] weight nvfp4[32, 128]");
  EXPECT_EQ(entry.flops, 2 * 6 * 128 * 32);
  const std::int64_t row_scales = ctx().device().is_cuda() ? 32 * 4 : 0;
  // codes, scales, tensor scale
  const std::int64_t weight_bytes = 32 * 128 / 2 + 32 * 8 + 4 + row_scales;
  EXPECT_EQ(entry.bytes, 6 * 128 * 4 + weight_bytes + 32 * 4 + 2 * 6 * 32 * 2);
}

// ---- gated --------------------------------------------------------------------------------------

class GatedLinearTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, GatedLinearTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(GatedLinearTest, EveryWeight) {
  for (const WeightCase& weight : every_weight()) {
    for (Activations activations : {Activations::exact, Activations::int8}) {
      for (std::int64_t rows : {1, 41}) {
        SCOPED_TRACE(weight.text());
        GatedCall call(ctx(),
                       {.rows = rows, .gate = weight, .up = weight, .activations = activations});
        gated_linear(ctx(), call.args);
        EXPECT_TRUE(call.correct());
      }
    }
  }
}

TEST_P(GatedLinearTest, DtypesLayoutsAndActivations) {
  for (DType dtype : kFloats) {
    for (Layout layout : kLayouts) {
      for (Activation activation : kEpilogues) {
        GatedCall call(ctx(), {.dtype = dtype, .layout = layout, .activation = activation});
        gated_linear(ctx(), call.args);
        EXPECT_TRUE(call.correct()) << name(activation);
      }
    }
  }
}

TEST_P(GatedLinearTest, BiasesAreAddedBeforeActivationAndProduct) {
  for (DType dtype : kFloats) {
    for (std::int64_t rows : {1, 41}) {
      GatedCall call(ctx(), {.rows = rows});
      const TestTensor gate_bias(ctx(), random_normal({70}, 7), dtype);
      const TestTensor up_bias(ctx(), random_normal({70}, 8), dtype);
      const auto check = [&](const Array& gate_values, const Array& up_values) {
        gated_linear(ctx(), call.args);
        EXPECT_TRUE(
            close(call.out.read(),
                  reference::gated_linear(call.x.read(), call.gate.values(), call.up.values(),
                                          Activation::silu, gate_values, up_values),
                  1e-4, 1e-4));
        EXPECT_TRUE(call.out.surroundings_intact());
      };
      call.args.up_bias = up_bias;
      check({}, up_bias.read());
      call.args.gate_bias = gate_bias;
      check(gate_bias.read(), up_bias.read());
      call.args.up_bias = {};
      check(gate_bias.read(), {});
    }
  }
}

// A plan may keep one of the two dense, or give them formats that run on different kernels.
TEST(GatedLinear, GateAndUpMayDiffer) {
  const WeightCase dense{}, nvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true},
      int8{.packed = {{.format = Format::int8}}, .prepared = true},
      published{.packed = {{.format = Format::nvfp4}}};
  for (const auto& [gate, up, kernel] :
       std::vector<std::tuple<WeightCase, WeightCase, std::string>>{
           {dense, nvfp4, "cpu.mixed"},
           {nvfp4, int8, "cpu.tiles.int8"},
           {int8, nvfp4, "cpu.tiles.int8"},
           {published, nvfp4, "cpu.mixed"}}) {
    for (std::int64_t rows : {1, 200}) {
      const auto ctx = linear_context();
      GatedCall call(*ctx,
                     {.rows = rows, .gate = gate, .up = up, .activations = Activations::int8});
      gated_linear(*ctx, call.args);
      EXPECT_TRUE(call.correct());
      EXPECT_EQ(ctx->trace().calls("gated_linear", kernel), 1);
    }
  }
}

TEST(GatedLinear, TraceCountsBothProducts) {
  const auto ctx = linear_context();
  GatedCall call(*ctx, {});
  gated_linear(*ctx, call.args);
  const TraceEntry& entry = ctx->trace().entries()[0];
  EXPECT_EQ(entry.kernel, "cpu.gemv.f32");
  EXPECT_EQ(entry.shapes, "x f32[3, 113] gate f32[70, 113] up f32[70, 113]");
  EXPECT_EQ(entry.flops, 2 * 2 * 3 * 70 * 113);
  EXPECT_EQ(entry.bytes, 4 * (3 * 113 + 2 * 70 * 113 + 3 * 70));
}

// ---- every SIMD target --------------------------------------------------------------------------

TEST(LinearSimd, EveryTarget) {
  on_every_simd_target([&] {
    const auto ctx = linear_context();
    for (std::int64_t rows : kLinearRows) {
      for (DType dtype : kFloats) {
        for (std::int64_t in : {3, 239}) {
          check_linear(*ctx, {.rows = {rows},
                              .in = in,
                              .out = 77,
                              .weight = {.dtype = dtype},
                              .x_dtype = dtype,
                              .out_dtype = dtype,
                              .layout = Layout::sliced,
                              .activation = Activation::gelu,
                              .bias = dtype,
                              .residual = true});
        }
      }
    }
    for (Activation activation : kEpilogues) {
      GatedCall call(*ctx, {.activation = activation});
      gated_linear(*ctx, call.args);
      EXPECT_TRUE(call.correct());
    }
  });
}

}  // namespace
}  // namespace tessera::test
