// linear() with packed weights: every format, layout and kind of activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reference/linear.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_case.h"
#include "support/sanitizers.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr Activations kActivations[] = {Activations::exact, Activations::int8};

std::unique_ptr<Context> packed_context() {
  return std::make_unique<Context>(ContextOptions{.threads = 2});
}

class LinearPackedTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, LinearPackedTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(LinearPackedTest, OddSizes) {
  Thinned thinned(3);
  for (const WeightCase& weight : every_weight()) {
    for (Activations activations : kActivations) {
      for (std::int64_t rows : {1, 3, 17, 113}) {
        for (std::int64_t in : {1, 17, 113, 239}) {
          if (!thinned.takes_next()) continue;
          check_linear(ctx(), {.rows = {rows},
                               .in = in,
                               .out = rows == 113 ? 3 : 17,
                               .weight = weight,
                               .activations = activations});
        }
      }
    }
  }
}

// Sizes around the borders of blocks (16, 32, 64, 128), of pieces of K (256) and of tiles (16, 32,
// 64).
TEST_P(LinearPackedTest, Borders) {
  Thinned thinned(5);
  for (const WeightCase& weight : every_weight()) {
    for (Activations activations : kActivations) {
      for (std::int64_t rows : {1, 5, 41}) {
        for (std::int64_t in : {32, 64, 129, 256, 513}) {
          if (!thinned.takes_next()) continue;
          check_linear(ctx(),
                       {.rows = {rows}, .in = in, .weight = weight, .activations = activations});
        }
        for (std::int64_t out : {1, 16, 32, 33, 64, 81}) {
          if (!thinned.takes_next()) continue;
          check_linear(
              ctx(),
              {.rows = {rows}, .in = 40, .out = out, .weight = weight, .activations = activations});
        }
      }
    }
  }
}

TEST_P(LinearPackedTest, LayoutsDtypesAndEpilogue) {
  Thinned thinned(5);
  for (const WeightCase& weight : every_weight()) {
    for (Activations activations : kActivations) {
      for (Layout layout : kLayouts) {
        const DType dtype = layout == Layout::sliced     ? DType::f16
                            : layout == Layout::permuted ? DType::bf16
                                                         : DType::f32;
        for (std::int64_t rows : {1, 20}) {
          if (!thinned.takes_next()) continue;
          check_linear(ctx(), {.rows = {2, rows},
                               .weight = weight,
                               .x_dtype = dtype,
                               .out_dtype = dtype,
                               .layout = layout,
                               .activations = activations,
                               .activation = Activation::silu,
                               .bias = DType::bf16,
                               .residual = true});
        }
      }
    }
  }
}

TEST(LinearPacked, EverySimdTarget) {
  Thinned thinned(5);
  on_every_simd_target([&] {
    const auto ctx = packed_context();
    for (const WeightCase& weight : every_weight()) {
      for (Activations activations : kActivations) {
        for (std::int64_t rows : {1, 4, 41}) {
          if (!thinned.takes_next()) continue;
          check_linear(
              *ctx,
              {.rows = {rows}, .in = 239, .out = 49, .weight = weight, .activations = activations});
        }
      }
    }
  });
}

// Scales that quantize() never makes but that a checkpoint may hold: every E4M3 and its negative,
// the smallest and large powers of two, negative floats.
TEST(LinearPacked, UnusualScales) {
  Thinned thinned(5);
  const auto check = [](Format format, const std::function<void(Weight&)>& adjust) {
    on_every_simd_target([&] {
      const auto ctx = packed_context();
      for (bool prepared : {false, true}) {
        for (Activations activations : kActivations) {
          for (std::int64_t rows : {1, 37}) {
            check_linear(
                *ctx,
                {.rows = {rows},
                 .in = 40,
                 .out = 2,
                 .weight = {.packed = {{.format = format}}, .prepared = prepared, .adjust = adjust},
                 .activations = activations});
          }
        }
      }
    });
  };
  const auto set_bytes = [](int code) {
    return [code](const Weight& weight) {
      std::fill_n(weight.scales.ptr<std::uint8_t>(), weight.scales.numel(),
                  static_cast<std::uint8_t>(code));
    };
  };
  for (int code = 0; code < 256; ++code) {
    if (code % 128 == 127 || !thinned.takes_next()) continue;  // 127: NaN
    SCOPED_TRACE("E4M3 scale " + std::to_string(code));
    check(Format::nvfp4, set_bytes(code));
  }
  for (int code : {0, 1, 2, 30, 127, 200, 219, 230, 244}) {  // 244: 2^117, sums near 2^125
    SCOPED_TRACE("E8M0 scale " + std::to_string(code));
    check(Format::mxfp4, set_bytes(code));
  }
  for (float scale : {1e-34f, 1e-10f, 7.f, 1e34f}) {
    SCOPED_TRACE("tensor scale " + std::to_string(scale));
    check(Format::nvfp4, [scale](Weight& weight) { weight.tensor_scale = scale; });
  }
  const auto flip_signs = [](const Weight& weight) {
    const std::int64_t size = size_of(weight.scales.dtype);
    for (std::int64_t i = size - 1; i < weight.scales.bytes(); i += size) {
      weight.scales.ptr<std::uint8_t>()[i] ^= 0x80;
    }
  };
  for (Format format : {Format::nf4, Format::int4, Format::int8, Format::fp8}) {
    check(format, flip_signs);
  }
}

// A NaN among the codes of fp8 must reach the output as NaN.
TEST(LinearPacked, Fp8NanReachesItsFeature) {
  const auto ctx = packed_context();
  on_every_simd_target([&] {
    for (std::int64_t rows : {1, 2, 37}) {
      for (std::int64_t at : {3, 100, 112}) {  // in a whole run of vectors and in the last one
        LinearCall call(*ctx, {.rows = {rows},
                               .weight = {.packed = {{.format = Format::fp8}},
                                          .adjust = [at](const Weight& weight) {
                                            weight.data.ptr<std::uint8_t>()[113 + at] = 0xff;
                                          }}});
        linear(*ctx, call.args);
        const Array out = call.out.read();
        for (std::int64_t n = 0; n < 17; ++n) EXPECT_EQ(std::isnan(out.at(0, n)), n == 1);
      }
    }
  });
}

// The bounds of the tests above are worst cases. On Gaussian numbers, 8-bit activations cost about
// half a percent. The step max|x| / 127 of a block of 32 is 0.018 standard deviations, and rounding
// to it has an error of 0.018 / sqrt(12).
TEST(LinearPacked, Int8ActivationsCostHalfAPercent) {
  const auto ctx = packed_context();
  for (const WeightCase& weight : every_weight()) {
    SCOPED_TRACE(weight.text());
    LinearCall call(
        *ctx,
        {.rows = {20}, .in = 512, .out = 64, .weight = weight, .activations = Activations::int8});
    linear(*ctx, call.args);
    const Array expected = reference::linear(call.x.read(), call.weight.values());
    const double error = relative_error(call.out.read(), expected);
    if (call.args.weight.layout == WeightLayout::published) {
      EXPECT_LT(error, 1e-6);  // exact
    } else {
      const bool nf4 = call.args.weight.format == Format::nf4;  // the table is rounded as well
      // Random zero points make all weights of a row large, so each sum has 512 similar terms.
      EXPECT_LT(error, nf4 ? 0.0095 : weight.int8_zeros ? 0.007 : 0.006);
      EXPECT_GT(error, 0.003);
    }
  }
}

// Blocks that 127 / max|x| cannot scale: zeros, and numbers near the smallest f32.
TEST(LinearPacked, TinyActivationsCountAsZero) {
  const auto ctx = packed_context();
  for (double x : {0.0, 1e-44, 1e-38}) {
    LinearCall call(*ctx, {.rows = {2},
                           .weight = {.packed = {{.format = Format::int8}}, .prepared = true},
                           .activations = Activations::int8,
                           .bias = DType::f32});
    const TestTensor values(*ctx, Array({2, 113}, x), DType::f32);
    call.args.x = values;
    linear(*ctx, call.args);
    const Array out = call.out.read(), bias = call.bias->read();
    for (std::int64_t n = 0; n < 17; ++n) EXPECT_EQ(out.at(1, n), bias.at(n));
  }
}

}  // namespace
}  // namespace tessera::test
