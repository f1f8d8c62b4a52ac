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
#include "support/refusal.h"
#include "support/simd_targets.h"
#include "support/test_tensor.h"

namespace tessera::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

enum class Kind { layer, rms };
constexpr Kind kKinds[] = {Kind::layer, Kind::rms};

void run(Context& ctx, Kind kind, const NormArgs& args) {
  kind == Kind::layer ? layer_norm(ctx, args) : rms_norm(ctx, args);
}

struct Case {
  Kind kind = Kind::layer;
  std::vector<std::int64_t> shape = {2, 3, 113};
  DType dtype = DType::f32;
  DType weight_dtype = DType::f32;
  Layout layout = Layout::contiguous;
  int residuals = 0;
  bool bias = true;  // of a layer norm
  Dropout dropout{};

  std::string text() const {
    return std::string(kind == Kind::layer ? "layer_norm " : "rms_norm ") +
           testing::PrintToString(shape) + " " + std::string(name(dtype)) + " weight " +
           std::string(name(weight_dtype)) + " " + to_string(layout) + " residuals " +
           std::to_string(residuals) + (bias ? " bias" : "") +
           (dropout.p > 0 ? " dropout " + std::to_string(dropout.p) : "");
  }
};

// The tensors of one call.
struct Call {
  TestTensor x, weight, bias, out, sum;
  std::vector<TestTensor> residuals;
  NormArgs args;

  Call(Context& ctx, const Case& c, double offset = 0.5)
      : x(ctx, shifted(random_normal(c.shape, 1), offset), c.dtype, c.layout),
        weight(ctx, random_normal({c.shape.back()}, 2), c.weight_dtype, c.layout),
        bias(ctx, random_normal({c.shape.back()}, 3), c.weight_dtype, c.layout),
        out(TestTensor::poisoned(ctx, c.shape, c.dtype, c.layout)),
        sum(TestTensor::poisoned(ctx, c.shape, c.dtype, c.layout)) {
    for (int i = 0; i < c.residuals; ++i) {
      residuals.emplace_back(ctx, random_normal(c.shape, 10 + static_cast<std::uint64_t>(i), 3.0),
                             c.dtype, c.layout);
      args.residuals[i] = residuals.back();
    }
    args.x = x;
    args.weight = weight;
    if (c.kind == Kind::layer && c.bias) args.bias = bias;
    if (c.residuals > 0) args.sum = sum;
    args.dropout = c.dropout;
    args.out = out;
  }

  static Array shifted(Array values, double offset) {
    for (double& value : values.data) value += offset;
    return values;
  }

  Array expected_sum(DType dtype) const {
    std::vector<Array> added;
    for (const TestTensor& residual : residuals) added.push_back(residual.read());
    return reference::residual_sum(reference::dropped(x.read(), args.dropout, dtype), added, dtype);
  }

  Array expected_out(Kind kind, DType dtype) const {
    const Array s = expected_sum(dtype);
    if (kind == Kind::rms) return reference::rms_norm(s, weight.read(), args.eps);
    return reference::layer_norm(s, weight.read(), args.bias.defined() ? bias.read() : Array(),
                                 args.eps);
  }
};

// One rounding to the dtype (half a unit in the last place; f16 has subnormals), on top of what f32
// arithmetic loses: mean and deviation are off by a few units of the largest term, and each element
// is a difference of numbers below 12, scaled by a weight below 5.
testing::AssertionResult accurate(const Array& actual, const Array& expected, DType dtype) {
  const double rounding = dtype == DType::f32 ? 0.0 : 0.51 * epsilon(dtype);
  const double subnormal = dtype == DType::f16 ? 0x1p-25 : 0.0;
  return close(actual, expected, rounding + 4 * 0x1p-23, subnormal + 16 * 0x1p-23);
}

void check(Context& ctx, const Case& c) {
  SCOPED_TRACE(c.text());
  Call call(ctx, c);
  run(ctx, c.kind, call.args);
  EXPECT_TRUE(accurate(call.out.read(), call.expected_out(c.kind, c.dtype), c.dtype));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.x.untouched());
  if (c.residuals > 0) {
    // Bit for bit what separate adds would give.
    EXPECT_TRUE(identical(call.sum.read(), call.expected_sum(c.dtype)));
    EXPECT_TRUE(call.sum.surroundings_intact());
    for (const TestTensor& residual : call.residuals) EXPECT_TRUE(residual.untouched());
  }

  Call again(ctx, c);
  run(ctx, c.kind, again.args);
  EXPECT_TRUE(identical(again.out.read(), call.out.read()));
}

class NormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(NormTest, OddSizes) {
  for (Kind kind : kKinds) {
    for (std::int64_t n : {1, 2, 3, 7, 16, 31, 113, 239, 1023, 2560}) {
      for (int residuals : {0, 1, 2, 3}) {
        check(ctx(), {.kind = kind, .shape = {3, n}, .residuals = residuals});
      }
    }
  }
}

// Rows of whole 16-byte pieces, which a GPU holds in registers: several rows to a block, one and
// more pieces for each thread, teams that are not full, the widest row, one too wide.
TEST_P(NormTest, WidthsOfWholePieces) {
  struct Size {
    std::int64_t rows, width;
  };
  constexpr Size kSizes[] = {{1, 8},    {5, 64},   {7, 256},   {3, 520},  {300, 1032},
                             {1, 2560}, {2, 4104}, {1, 16384}, {1, 16392}};
  for (const auto& [rows, width] : kSizes) {
    for (DType dtype : kFloats) {
      const Kind kind = width % 512 == 0 ? Kind::rms : Kind::layer;
      ctx().trace().clear();
      check(ctx(), {.kind = kind,
                    .shape = {rows, width},
                    .dtype = dtype,
                    .weight_dtype = dtype,
                    .residuals = static_cast<int>(rows % 4)});
      if (GetParam().is_cpu()) continue;
      const char* const op = kind == Kind::rms ? "rms_norm" : "layer_norm";
      EXPECT_EQ(ctx().trace().calls(op, width > 16384 ? "cuda.plain" : "cuda.registers"), 2);
    }
  }
}

// So many that a GPU's threads take four pieces each, and teams share a block of which the last is
// not full.
TEST_P(NormTest, ManyRows) { check(ctx(), {.shape = {4097, 520}, .residuals = 1}); }

TEST_P(NormTest, DtypesAndLayouts) {
  for (Kind kind : kKinds) {
    for (DType dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (int residuals : {0, 1, 2, 3}) {
          check(ctx(), {.kind = kind, .dtype = dtype, .layout = layout, .residuals = residuals});
        }
      }
      for (DType weight_dtype : kFloats) {
        check(ctx(), {.kind = kind, .dtype = dtype, .weight_dtype = weight_dtype});
      }
    }
  }
}

// Both kernels of a GPU, every count of residuals, widths that end within four columns.
TEST_P(NormTest, DropsTheElementsThatPhiloxNames) {
  constexpr std::int64_t kWidths[] = {1, 7, 113, 264, 2560, 4104};
  for (const std::int64_t width : kWidths) {
    for (DType dtype : kFloats) {
      for (int residuals : {1, 2, 3}) {
        const Kind kind = residuals == 2 ? Kind::rms : Kind::layer;
        check(ctx(), {.kind = kind,
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

// Rows are told apart, and so are seeds; the share dropped is p within four standard deviations.
TEST_P(NormTest, DropsAsManyAsAskedAndKeepsTheMean) {
  constexpr std::int64_t kRows = 64, kWidth = 512;
  const TestTensor ones(ctx(), Array({kRows, kWidth}, 1.0), DType::f32);
  const TestTensor zeros(ctx(), Array({kRows, kWidth}), DType::f32);
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const auto sum_of = [&](std::uint64_t seed) {
      Call call(ctx(), {.shape = {kRows, kWidth}, .residuals = 1, .dropout = {p, seed}});
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
      const Case without{.shape = {5, width}, .dtype = dtype, .residuals = 2};
      Case with = without;
      with.dropout = {0.f, 7};
      Call a(ctx(), without), b(ctx(), with);
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
    check(ctx(), {.shape = shape, .layout = Layout::permuted, .residuals = 2, .bias = false});
  }
}

TEST_P(NormTest, NormalisesTheRoundedSum) {
  for (Kind kind : kKinds) {
    for (DType dtype : kFloats) {
      const Case c{.kind = kind, .dtype = dtype, .residuals = 3};
      Call fused(ctx(), c), alone(ctx(), c);
      run(ctx(), kind, fused.args);
      alone.args.x = fused.sum;
      alone.args.residuals = {};
      alone.args.sum = {};
      run(ctx(), kind, alone.args);
      EXPECT_TRUE(identical(fused.out.read(), alone.out.read()));
    }
  }
}

// The deviation is a thousandth of the mean. Each f32 of 1000 is good to 3e-5 and so is the mean;
// E[x^2] - E[x]^2 would lose a variance of 1 among squares of 10^6 that are good to 0.06.
TEST_P(NormTest, KeepsItsBitsUnderALargeMean) {
  const Case c{.shape = {4, 1023}};
  Call call(ctx(), c, /*offset=*/1000.0);
  layer_norm(ctx(), call.args);
  EXPECT_TRUE(close(call.out.read(), call.expected_out(Kind::layer, DType::f32), 0, 1e-3));
}

TEST_P(NormTest, EpsHoldsAConstantRowInPlace) {
  Call call(ctx(), {.shape = {2, 5}});
  const TestTensor constant(ctx(), Array({2, 5}, 3.0), DType::f32);
  call.args.x = constant;
  layer_norm(ctx(), call.args);
  const Array bias = call.bias.read(), out = call.out.read();
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(out.at(1, i), bias.at(i));
}

TEST_P(NormTest, WorksInPlace) {
  for (Layout layout : kLayouts) {
    const Case c{.shape = {3, 2, 37}, .dtype = DType::f16, .layout = layout, .residuals = 3};
    const auto sum_into = [&](const std::function<Tensor(Call&)>& target) {
      Call apart(ctx(), c), in_place(ctx(), c);
      layer_norm(ctx(), apart.args);
      in_place.args.sum = target(in_place);
      layer_norm(ctx(), in_place.args);
      EXPECT_TRUE(identical(in_place.out.read(), apart.out.read()));
      return std::pair(apart.sum.read(), std::move(in_place));
    };
    auto [sum, over_x] = sum_into([](Call& call) { return call.x.view(); });
    EXPECT_TRUE(identical(over_x.x.read(), sum));
    for (std::size_t r : {0u, 1u, 2u}) {
      auto [same_sum, over] = sum_into([r](Call& call) { return call.residuals[r].view(); });
      EXPECT_TRUE(identical(over.residuals[r].read(), same_sum));
      EXPECT_TRUE(over.residuals[r].surroundings_intact());
    }

    Call apart(ctx(), c), in_place(ctx(), c);
    rms_norm(ctx(), (apart.args.bias = {}, apart.args));
    in_place.args.bias = {};
    in_place.args.out = in_place.x;
    rms_norm(ctx(), in_place.args);
    EXPECT_TRUE(identical(in_place.x.read(), apart.out.read()));
  }
}

TEST_P(NormTest, SameBitsForAnyThreadCount) {
  for (Kind kind : kKinds) {
    const Case c{.kind = kind, .shape = {61, 799}, .dtype = DType::bf16, .residuals = 2};
    const auto one = context(1), three = context(3);
    Call a(*one, c), b(*three, c);
    run(*one, kind, a.args);
    run(*three, kind, b.args);
    EXPECT_TRUE(identical(a.out.read(), b.out.read()));
    EXPECT_TRUE(identical(a.sum.read(), b.sum.read()));
  }
}

TEST_P(NormTest, NanStaysInItsRow) {
  Array values = random_normal({3, 113}, 7);
  values.at(1, 57) = NAN;
  Call call(ctx(), {.shape = {3, 113}});
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
    Call call(ctx(), {.shape = shape, .residuals = 1});
    layer_norm(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
    EXPECT_TRUE(call.sum.untouched());
  }
}

TEST_P(NormTest, IsTraced) {
  const char* kernel = GetParam().is_cpu() ? "cpu" : "cuda.registers";
  Call call(ctx(), {.shape = {2, 8}, .residuals = 1});
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

// ---- refusals -----------------------------------------------------------------------------------

TEST_P(NormTest, RefusesBeforeWriting) {
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
       "layer_norm: dropout p is 0.5 without residuals: it drops from x before x is added to them; "
       "give at least one, or p = 0"},
      {[](NormArgs& a) { a.residuals[0] = {}; },
       "layer_norm: residuals[1] was given but residuals[0] was not: fill them in order"},
      {[](NormArgs& a) { a.residuals[1].dtype = DType::f16; },
       "layer_norm: residuals[1] is f16, but x is f32: they must be the same"},
      {[](NormArgs& a) { a.residuals[1].shape[0] = 2; },
       "layer_norm: residuals[1] must have the shape of x, f32[3, 5], got f32[2, 5]"},
      {[](NormArgs& a) { a.residuals[0].data = nullptr; },
       "layer_norm: residuals[0] f32[3, 5] has no data (null pointer)"},
      {[](NormArgs& a) { a.sum = {}; },
       "layer_norm: sum was not given; with residuals it is where x + residuals goes"},
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
    Call call(ctx(), {.shape = {3, 5}, .residuals = 2});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { layer_norm(ctx(), call.args); }, refusal.text, refusal.code));
    for (const TestTensor* tensor : {&call.x, &call.weight, &call.bias, &call.out, &call.sum,
                                     &call.residuals[0], &call.residuals[1]}) {
      EXPECT_TRUE(tensor->untouched());
    }
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST_P(NormTest, RmsNormTakesNoBias) {
  Call call(ctx(), {.shape = {3, 5}});
  EXPECT_TRUE(refuses([&] { rms_norm(ctx(), call.args); },
                      "rms_norm: bias was given; use layer_norm for a norm with a bias"));
  EXPECT_TRUE(call.out.untouched());
}

// ---- every SIMD target --------------------------------------------------------------------------

TEST(NormSimd, EveryTarget) {
  Context ctx({.threads = 2});
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (Kind kind : kKinds) {
      for (DType dtype : kFloats) {
        for (std::int64_t n : {1, 3, 16, 113, 239}) {
          for (int residuals : {0, 3}) {
            check(ctx, {.kind = kind,
                        .shape = {3, n},
                        .dtype = dtype,
                        .layout = Layout::sliced,
                        .residuals = residuals,
                        .dropout = {residuals > 0 && n > 16 ? 0.4f : 0.f, 99}});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
