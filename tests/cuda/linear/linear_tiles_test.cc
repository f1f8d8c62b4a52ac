// Packed weights as prepare() lays them out for a GPU: what the layout holds, and linear() on it,
// by the streaming kernel (a few tokens) and the others (many).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/half.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/portable/stream.h"
#include "cuda/linear/product.h"
#include "cuda/linear/tiled_weights.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_case.h"
#include "support/sanitizers.h"
#include "tessera/linear.h"

namespace tessera::test {
namespace {

class CudaTilesTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaTilesTest, testing::Values(Device::cuda()), device_name);

// Back and forth: no bit is lost, whatever the sizes, and the rest of a tile does not matter.
TEST_P(CudaTilesTest, TilesHoldThePublishedBits) {
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

TEST_P(CudaTilesTest, PrepareCopiesWhatHasNoTiles) {
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
TEST_P(CudaTilesTest, StreamedSizes) {
  Thinned thinned(5);
  for (const WeightCase& weight : tiled_weights()) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {1, 3, 8, 13}) {
        for (std::int64_t in : {1, 63, 64, 129, 513}) {
          if (!thinned.takes_next()) continue;
          check_linear(ctx(), {.rows = {rows}, .in = in, .weight = weight, .x_dtype = dtype});
        }
        for (std::int64_t out : {1, 16, 33, 81}) {
          if (!thinned.takes_next()) continue;
          check_linear(ctx(),
                       {.rows = {rows}, .in = 80, .out = out, .weight = weight, .x_dtype = dtype});
        }
      }
    }
  }
  EXPECT_GT(ctx().trace().calls("linear", "cuda.stream"), 0);
  EXPECT_EQ(ctx().trace().calls("linear", "cuda.plain.decode"), 0);
}

// cuda.stream itself, whatever linear() would choose: more activations than shared memory holds, 16
// tokens and 8; whole pairs and parts of one.
TEST_P(CudaTilesTest, StreamedActivationsInChunks) {
  for (const WeightCase& weight :
       {WeightCase{.packed = {{.format = Format::nvfp4}}, .prepared = true},
        WeightCase{.packed = {{.format = Format::int4, .group = 128, .zero_point = true}},
        .prepared = true},
        WeightCase{.packed = {{.format = Format::fp8}}, .prepared = true}}) {
    for (const LinearCase& c :
         {LinearCase{.rows = {16},
         .in = 8200,
         .out = 33,
         .weight = weight,
         .x_dtype = DType::bf16,
         .activation = Activation::gelu,
         .bias = DType::f32,
         .residual = true},
          LinearCase{
              .rows = {8}, .in = 14336, .out = 17, .weight = weight, .x_dtype = DType::f16}}) {
      LinearCall call(ctx(), c);
      const cuda::Product product = cuda::product_of(call.args);
      const cuda::LinearCall stream{ctx(), product, c.rows[0]};
      ASSERT_TRUE(cuda::takes_stream(stream));
      const cuda::StreamPlan plan = cuda::plan_stream(stream);
      cuda::run_stream(stream, plan);
      EXPECT_TRUE(call.correct());
      const Array first = call.out.read();
      cuda::run_stream(stream, plan);
      EXPECT_TRUE(identical(call.out.read(), first));
    }
  }
}

TEST_P(CudaTilesTest, StreamedLayoutsAndEpilogues) {
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
TEST_P(CudaTilesTest, ManyRows) {
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

// The ways out of a tile: every dtype and layout of the output, with and without what is added.
TEST_P(CudaTilesTest, EpiloguesOfManyRows) {
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
TEST_P(CudaTilesTest, StreamedUnusualScales) {
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
    check_rows(1, format, adjust);
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

// The fast decoders know no NaN: the feature's scale stands for it.
TEST_P(CudaTilesTest, StreamedNanReachesItsRow) {
  const auto check = [&](Format format, std::size_t byte, int nan) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (std::int64_t rows : {1, 2}) {
        LinearCall call(ctx(), {.rows = {rows},
                                .in = 112,
                                .weight = {.packed = {{.format = format}},
                                           .prepared = true,
                                           .adjust =
                                               [&](Weight& weight) {
                                                 const Tensor& part = format == Format::fp8
                                                                          ? weight.data
                                                                          : weight.scales;
                                                 part.ptr<std::uint8_t>()[byte] =
                                                     static_cast<std::uint8_t>(nan);
                                               }},
                                .x_dtype = dtype});
        linear(ctx(), call.args);
        const Array out = call.out.read();
        for (std::int64_t n = 0; n < 17; ++n)
          EXPECT_EQ(std::isnan(out.at(rows - 1, n)), n == 1) << n;
      }
    }
  };
  check(Format::fp8, 112 + 100, 0xff);
  check(Format::nvfp4, 7 + 3, 0x7f);
  check(Format::mxfp4, 4 + 2, 0xff);
}

}  // namespace
}  // namespace tessera::test
