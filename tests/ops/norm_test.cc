#include "tessera/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "reference/norm.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/norm_case.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

class NormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(NormTest, OddSizes) {
  for (NormKind kind : kNormKinds) {
    for (std::int64_t n : {1, 2, 3, 7, 16, 31, 113, 239, 1023, 2560}) {
      for (int residuals : {0, 1, 2, 3}) {
        check_norm(ctx(), {.kind = kind, .shape = {3, n}, .residuals = residuals});
      }
    }
  }
}

// Rows of whole 16-byte pieces, which a GPU holds in registers: several rows in a block, one and
// more pieces for each thread, teams that are not full, the widest row, and one that is too wide.
TEST_P(NormTest, WidthsOfWholePieces) {
  struct Size {
    std::int64_t rows, width;
  };
  constexpr Size kSizes[] = {{1, 8},    {5, 64},   {7, 256},   {3, 520},  {300, 1032},
                             {1, 2560}, {2, 4104}, {1, 16384}, {1, 16392}};
  for (const auto& [rows, width] : kSizes) {
    for (DType dtype : kFloats) {
      const NormKind kind = width % 512 == 0 ? NormKind::rms : NormKind::layer;
      ctx().trace().clear();
      check_norm(ctx(), {.kind = kind,
                         .shape = {rows, width},
                         .dtype = dtype,
                         .weight_dtype = dtype,
                         .residuals = static_cast<int>(rows % 4)});
      if (GetParam().is_cpu()) continue;
      const char* const op = kind == NormKind::rms ? "rms_norm" : "layer_norm";
      EXPECT_EQ(ctx().trace().calls(op, width > 16384 ? "cuda.plain" : "cuda.registers"), 2);
    }
  }
}

// Enough rows that a GPU's threads take four pieces each and teams share a block, the last of which
// is not full.
TEST_P(NormTest, ManyRows) { check_norm(ctx(), {.shape = {4097, 520}, .residuals = 1}); }

TEST_P(NormTest, DtypesAndLayouts) {
  for (NormKind kind : kNormKinds) {
    for (DType dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (int residuals : {0, 1, 2, 3}) {
          check_norm(ctx(),
                     {.kind = kind, .dtype = dtype, .layout = layout, .residuals = residuals});
        }
      }
      for (DType weight_dtype : kFloats) {
        check_norm(ctx(), {.kind = kind, .dtype = dtype, .weight_dtype = weight_dtype});
      }
    }
  }
}

// Both kernels of a GPU, every number of residuals, and widths that are not a multiple of four.
TEST_P(NormTest, DropsTheElementsThatPhiloxNames) {
  constexpr std::int64_t kWidths[] = {1, 7, 113, 264, 2560, 4104};
  for (const std::int64_t width : kWidths) {
    for (DType dtype : kFloats) {
      for (int residuals : {1, 2, 3}) {
        const NormKind kind = residuals == 2 ? NormKind::rms : NormKind::layer;
        check_norm(ctx(), {.kind = kind,
                           .shape = {2, 3, width},
                           .dtype = dtype,
                           .weight_dtype = dtype,
                           .layout = width < 1000 ? Layout::permuted : Layout::contiguous,
                           .residuals = residuals,
                           .dropout = {0.3f, 0x123456789abcdefull}});
      }
    }
  }
}

// Rows differ, and so do seeds. The share of dropped elements is p within four standard deviations.
TEST_P(NormTest, DropsAsManyAsAskedAndKeepsTheMean) {
  constexpr std::int64_t kRows = 64, kWidth = 512;
  const TestTensor ones(ctx(), Array({kRows, kWidth}, 1.0), DType::f32);
  const TestTensor zeros(ctx(), Array({kRows, kWidth}), DType::f32);
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const auto sum_of = [&](std::uint64_t seed) {
      NormCall call(ctx(), {.shape = {kRows, kWidth}, .residuals = 1, .dropout = {p, seed}});
      call.args.x = ones;
      call.args.residuals[0] = zeros;
      layer_norm(ctx(), call.args);
      return call.sum.read();
    };
    const Array sum = sum_of(1);
    double dropped = 0, mean = 0;
    for (const double element : sum.data) {
      dropped += element == 0.0;
      mean += element / static_cast<double>(sum.data.size());
    }
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(sum.data.size()));
    EXPECT_NEAR(dropped / static_cast<double>(sum.data.size()), p, 4 * deviation);
    EXPECT_NEAR(mean, 1.0, 4 * deviation / (1 - p));
    EXPECT_FALSE(identical(sum, sum_of(2)));
    bool rows_differ = false;
    for (std::int64_t i = 0; i < kWidth; ++i) rows_differ |= sum.at(0, i) != sum.at(1, i);
    EXPECT_TRUE(rows_differ);
  }
}

TEST_P(NormTest, DropoutOfNothingChangesNoBit) {
  for (DType dtype : kFloats) {
    for (const std::int64_t width : {113, 264}) {
      const NormCase without{.shape = {5, width}, .dtype = dtype, .residuals = 2};
      NormCase with = without;
      with.dropout = {0.f, 7};
      NormCall a(ctx(), without), b(ctx(), with);
      layer_norm(ctx(), a.args);
      layer_norm(ctx(), b.args);
      EXPECT_TRUE(identical(a.out.read(), b.out.read()));
      EXPECT_TRUE(identical(a.sum.read(), b.sum.read()));
    }
  }
}

TEST_P(NormTest, RanksWithoutBias) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{5}, {1, 5}, {4, 3, 2, 5}, {2, 1, 2, 1, 3, 5}}) {
    check_norm(ctx(), {.shape = shape, .layout = Layout::permuted, .residuals = 2, .bias = false});
  }
}

TEST_P(NormTest, NormalisesTheRoundedSum) {
  for (NormKind kind : kNormKinds) {
    for (DType dtype : kFloats) {
      const NormCase c{.kind = kind, .dtype = dtype, .residuals = 3};
      NormCall fused(ctx(), c), alone(ctx(), c);
      run_norm(ctx(), kind, fused.args);
      alone.args.x = fused.sum;
      alone.args.residuals = {};
      alone.args.sum = {};
      run_norm(ctx(), kind, alone.args);
      EXPECT_TRUE(identical(fused.out.read(), alone.out.read()));
    }
  }
}

// The deviation is a thousandth of the mean. An f32 near 1000 has an error of 3e-5, and so has the
// mean. E[x^2] - E[x]^2 would lose a variance of 1 among squares of 10^6 that have an error of
// 0.06.
TEST_P(NormTest, KeepsItsBitsUnderALargeMean) {
  const NormCase c{.shape = {4, 1023}};
  NormCall call(ctx(), c, /*offset=*/1000.0);
  layer_norm(ctx(), call.args);
  EXPECT_TRUE(close(call.out.read(), call.expected_out(NormKind::layer, DType::f32), 0, 1e-3));
}

TEST_P(NormTest, EpsHoldsAConstantRowInPlace) {
  NormCall call(ctx(), {.shape = {2, 5}});
  const TestTensor constant(ctx(), Array({2, 5}, 3.0), DType::f32);
  call.args.x = constant;
  layer_norm(ctx(), call.args);
  const Array bias = call.bias.read(), out = call.out.read();
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(out.at(1, i), bias.at(i));
}

TEST_P(NormTest, WorksInPlace) {
  for (Layout layout : kLayouts) {
    const NormCase c{.shape = {3, 2, 37}, .dtype = DType::f16, .layout = layout, .residuals = 3};
    const auto sum_into = [&](const std::function<Tensor(NormCall&)>& target) {
      NormCall apart(ctx(), c), in_place(ctx(), c);
      layer_norm(ctx(), apart.args);
      in_place.args.sum = target(in_place);
      layer_norm(ctx(), in_place.args);
      EXPECT_TRUE(identical(in_place.out.read(), apart.out.read()));
      return std::pair(apart.sum.read(), std::move(in_place));
    };
    auto [sum, over_x] = sum_into([](NormCall& call) { return call.x.view(); });
    EXPECT_TRUE(identical(over_x.x.read(), sum));
    for (std::size_t r : {0u, 1u, 2u}) {
      auto [same_sum, over] = sum_into([r](NormCall& call) { return call.residuals[r].view(); });
      EXPECT_TRUE(identical(over.residuals[r].read(), same_sum));
      EXPECT_TRUE(over.residuals[r].surroundings_intact());
    }

    NormCall apart(ctx(), c), in_place(ctx(), c);
    rms_norm(ctx(), (apart.args.bias = {}, apart.args));
    in_place.args.bias = {};
    in_place.args.out = in_place.x;
    rms_norm(ctx(), in_place.args);
    EXPECT_TRUE(identical(in_place.x.read(), apart.out.read()));
  }
}

TEST_P(NormTest, SameBitsForAnyThreadCount) {
  for (NormKind kind : kNormKinds) {
    const NormCase c{.kind = kind, .shape = {61, 799}, .dtype = DType::bf16, .residuals = 2};
    const auto one = context(1), three = context(3);
    NormCall a(*one, c), b(*three, c);
    run_norm(*one, kind, a.args);
    run_norm(*three, kind, b.args);
    EXPECT_TRUE(identical(a.out.read(), b.out.read()));
    EXPECT_TRUE(identical(a.sum.read(), b.sum.read()));
  }
}

TEST_P(NormTest, NanStaysInItsRow) {
  Array values = random_normal({3, 113}, 7);
  values.at(1, 57) = NAN;
  NormCall call(ctx(), {.shape = {3, 113}});
  const TestTensor x(ctx(), values, DType::f32);
  call.args.x = x;
  layer_norm(ctx(), call.args);
  const Array out = call.out.read();
  for (std::int64_t i = 0; i < 113; ++i) {
    EXPECT_FALSE(std::isnan(out.at(0, i)));
    EXPECT_TRUE(std::isnan(out.at(1, i)));
    EXPECT_FALSE(std::isnan(out.at(2, i)));
  }
}

TEST_P(NormTest, EmptyTensorsAreNoWork) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{0, 5}, {3, 0}, {2, 0, 5}}) {
    NormCall call(ctx(), {.shape = shape, .residuals = 1});
    layer_norm(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
    EXPECT_TRUE(call.sum.untouched());
  }
}

TEST_P(NormTest, IsTraced) {
  const char* kernel = GetParam().is_cpu() ? "cpu" : "cuda.registers";
  NormCall call(ctx(), {.shape = {2, 8}, .residuals = 1});
  layer_norm(ctx(), call.args);
  call.args.bias = {};
  rms_norm(ctx(), call.args);
  EXPECT_EQ(ctx().trace().calls("layer_norm", kernel), 1);
  EXPECT_EQ(ctx().trace().calls("rms_norm", kernel), 1);
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "x f32[2, 8] residuals 1");
  EXPECT_EQ(entry.bytes, (4 * 16 + 2 * 8) * 4);  // x, residual, sum, out; weight, bias
  EXPECT_EQ(entry.flops, 9 * 16);
}

// ---- every SIMD target --------------------------------------------------------------------------

TEST(NormSimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (NormKind kind : kNormKinds) {
      for (DType dtype : kFloats) {
        for (std::int64_t n : {1, 3, 16, 113, 239}) {
          for (int residuals : {0, 3}) {
            check_norm(ctx, {.kind = kind,
                             .shape = {3, n},
                             .dtype = dtype,
                             .layout = Layout::sliced,
                             .residuals = residuals,
                             .dropout = {residuals > 0 && n > 16 ? 0.4f : 0.f, 99}});
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::test
