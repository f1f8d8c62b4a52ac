#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "quant/codec.h"
#include "quant/random_weight.h"
#include "reference/quant.h"
#include "reference/rounding.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

Context dequantize_context(int threads = 2) { return Context({.threads = threads, .trace = true}); }

// Allows the error of f32 arithmetic. There is none if code times scale has at most 24 bits.
// Otherwise the product is rounded once, and for nvfp4 the scale is rounded before that.
testing::AssertionResult accurate(const Array& actual, const Array& expected,
                                  const PublishedCase& how) {
  if (how.format == Format::mxfp4 || size_of(how.scales) == 2) return identical(actual, expected);
  return close(actual, expected, how.format == Format::nvfp4 ? 0x1.00001p-23 : 0x1p-24, 0);
}

class DequantizeTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, DequantizeTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(DequantizeTest, MatchesTheReferenceOnRaggedRows) {
  Context cpu = dequantize_context();
  for (const std::int64_t in : {1, 15, 17, 31, 33, 63, 65, 127, 129, 239}) {
    for (const Layout layout : kLayouts) {
      for (const PublishedCase& how : published_cases()) {
        SCOPED_TRACE(how.text() + " " + std::to_string(in) + " " + to_string(layout));
        const RandomWeight packed(ctx(), how, 5, in, layout);
        const RandomWeight twin(cpu, how, 5, in);
        const TestTensor out = TestTensor::poisoned(ctx(), {5, in}, DType::f32, layout);
        dequantize(ctx(), packed.weight, out);
        ASSERT_TRUE(accurate(out.read(), reference::dequantize(twin.weight), how));
        ASSERT_TRUE(out.surroundings_intact());
        ASSERT_TRUE(packed.data.untouched() && packed.scales.untouched());
      }
    }
  }
}

TEST(Dequantize, EveryCodeOfEveryFormat) {
  Context ctx = dequantize_context();
  for (const PublishedCase& how : published_cases()) {
    RandomWeight packed(ctx, how, 16, 256);
    for (std::int64_t i = 0; i < packed.weight.data.numel(); ++i) {
      packed.weight.data.ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 256);
    }
    const TestTensor out = TestTensor::poisoned(ctx, {16, 256}, DType::f32);
    dequantize(ctx, packed.weight, out);
    Array actual = out.read(), expected = reference::dequantize(packed.weight);
    int nans = 0;
    for (std::size_t i = 0; i < actual.data.size(); ++i) {  // E4M3 has two NaN codes
      if (!std::isnan(expected.data[i])) continue;
      EXPECT_TRUE(std::isnan(actual.data[i]));
      actual.data[i] = expected.data[i] = 0;
      ++nans;
    }
    EXPECT_EQ(nans, how.format == Format::fp8 ? 32 : 0);
    EXPECT_TRUE(accurate(actual, expected, how)) << how.text();
  }
}

TEST_P(DequantizeTest, IntoF16AndBf16) {
  for (const PublishedCase& how : published_cases()) {
    if (how.format == Format::mxfp4) continue;  // random powers of two leave f16's range
    const RandomWeight packed(ctx(), how, 5, 70);
    const TestTensor exact = TestTensor::poisoned(ctx(), {5, 70}, DType::f32);
    dequantize(ctx(), packed.weight, exact);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      for (const Layout layout : kLayouts) {
        const TestTensor out = TestTensor::poisoned(ctx(), {5, 70}, dtype, layout);
        dequantize(ctx(), packed.weight, out);
        EXPECT_TRUE(identical(out.read(), reference::rounded(exact.read(), dtype)));
        EXPECT_TRUE(out.surroundings_intact());
      }
    }
  }
}

TEST_P(DequantizeTest, DenseWeightsAreConverted) {
  const Array values = random_normal({5, 70}, 4);
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      for (const Layout layout : kLayouts) {
        const TestTensor dense(ctx(), values, from, layout);
        const TestTensor out = TestTensor::poisoned(ctx(), {5, 70}, to, layout);
        dequantize(ctx(), Weight::dense(dense), out);
        EXPECT_TRUE(identical(out.read(), reference::rounded(dense.read(), to)));
        EXPECT_TRUE(out.surroundings_intact());
      }
    }
  }
}

TEST(Dequantize, SameBitsWithAnyThreads) {
  Context one = dequantize_context(1), three = dequantize_context(3);
  for (const PublishedCase& how : published_cases()) {
    const RandomWeight packed(one, how, 167, 500);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const TestTensor a = TestTensor::poisoned(one, {167, 500}, dtype);
      const TestTensor b = TestTensor::poisoned(three, {167, 500}, dtype);
      dequantize(one, packed.weight, a);
      dequantize(three, packed.weight, b);
      EXPECT_TRUE(identical(a.read(), b.read())) << how.text() << " " << name(dtype);
    }
  }
}

// The kernels of `linear` call decode_row() for any part of a row. It writes no float beyond it.
TEST(DecodeRow, AnyRangeOfARow) {
  Context ctx = dequantize_context();
  constexpr std::int64_t kIn = 139;
  for (const PublishedCase& how : published_cases()) {
    const RandomWeight packed(ctx, how, 3, kIn, Layout::sliced);
    std::vector<float> whole(kIn);
    quant::decode_row(packed.weight, 1, 0, kIn, whole.data());
    for (std::int64_t begin = 0; begin <= kIn; ++begin) {
      for (std::int64_t end = begin; end <= kIn; end += 1 + end % 3) {
        constexpr float kCanary = -12345.f;
        std::vector<float> part(static_cast<std::size_t>(end - begin) + 1, kCanary);
        quant::decode_row(packed.weight, 1, begin, end, part.data());
        ASSERT_TRUE(std::equal(whole.begin() + begin, whole.begin() + end, part.begin()))
            << how.text() << " [" << begin << ", " << end << ")";
        ASSERT_EQ(part.back(), kCanary);
      }
    }
  }
}

struct DequantizeArgs {
  Weight weight;
  Tensor out;
};

void expect_refusals(const PublishedCase& how, const std::vector<Refusal<DequantizeArgs>>& rows) {
  Context ctx = dequantize_context();
  for (const auto& row : rows) {
    const RandomWeight packed(ctx, how, 3, 70);
    const TestTensor out = TestTensor::poisoned(ctx, {3, 70}, DType::f32);
    DequantizeArgs args{packed.weight, out};
    row.spoil(args);
    EXPECT_TRUE(refuses([&] { dequantize(ctx, args.weight, args.out); }, row.text, row.code));
    EXPECT_TRUE(out.untouched()) << row.text;
  }
  EXPECT_EQ(ctx.trace().calls("dequantize"), 0);
}

TEST(Dequantize, RefusesMalformedWeights) {
  expect_refusals(
      {Format::nvfp4, 16, DType::f8e4m3},
      {
          {[](auto& a) { a.weight = Weight(); }, "dequantize: weight was not given"},
          {[](auto& a) { a.weight.layout = WeightLayout::cpu_tiles; },
           "dequantize: weight nvfp4[3, 70] is in a kernel's layout; give it in the "
           "published layout, as quantize() made it"},
          {[](auto& a) { a.weight.out_features = -3; },
           "dequantize: weight has a negative size: nvfp4[-3, 70]"},
          {[](auto& a) { a.weight.format = static_cast<Format>(77); },
           "77 is not the number of a format; the last is 6 (fp8)"},
          {[](auto& a) { a.weight.group = 32; },
           "dequantize: weight is nvfp4 in groups of 32; accepted: 16"},
          {[](auto& a) { a.weight.in_features = 72; },
           "dequantize: weight.data must have shape [3, 36], got u8[3, 35]"},
          {[](auto& a) { a.weight.in_features = std::int64_t{1} << 62; },
           "size 4611686018427387904 x 4 does not fit into 64 bits", ErrorCode::overflow},
          {[](auto& a) { a.weight.data.dtype = DType::i8; },
           "dequantize: weight.data is i8; accepted: u8"},
          {[](auto& a) { a.weight.data.data = nullptr; },
           "dequantize: weight.data u8[3, 35] has no data (null pointer)"},
          {[](auto& a) { a.weight.data.device = Device::cuda(); },
           "dequantize: weight.data is on cuda:0, but the context runs on cpu"},
          {[](auto& a) { a.weight.scales = Tensor(); }, "dequantize: weight.scales was not given"},
          {[](auto& a) { a.weight.scales.dtype = DType::u8; },
           "dequantize: weight.scales is u8; accepted: f8e4m3"},
          {[](auto& a) { a.weight.scales = a.weight.scales.slice(1, 0, 4); },
           "dequantize: weight.scales must have shape [3, 5], got f8e4m3[3, 4] with strides [5, "
           "1]"},
          {[](auto& a) { a.weight.zeros = a.weight.scales; },
           "dequantize: weight is nvfp4, and only int4 and int8 take zeros"},
          {[](auto& a) { a.weight.tensor_scale = NAN; },
           "dequantize: weight.tensor_scale is nan; it must be finite"},
          {[](auto& a) { a.weight.scales.template ptr<std::uint8_t>()[7] = 0x7f; },
           "dequantize: weight.scales[1, 2] is nan; a scale must be finite"},
      });
  expect_refusals({Format::mxfp4, 32, DType::u8},
                  {{[](auto& a) { a.weight.scales.template ptr<std::uint8_t>()[4] = 0xff; },
                    "dequantize: weight.scales[1, 1] is nan; a scale must be finite"},
                   {[](auto& a) { a.weight.tensor_scale = 2.f; },
                    "dequantize: weight is mxfp4 with a tensor_scale of 2; only nvfp4 has one, "
                    "leave it at 1"}});
  expect_refusals(
      {Format::int4, 32, DType::bf16, true},
      {{[](auto& a) { a.weight.zeros.template ptr<std::uint8_t>()[5] = 16; },
        "dequantize: weight.zeros[1, 2] is 16; a zero point is a code from 0 to 15"},
       {[](auto& a) { a.weight.group = 24; },
        "dequantize: weight is int4 in groups of 24; accepted: 0 (the whole row) or a multiple of "
        "16"},
       {[](auto& a) { a.weight.scales.data = a.weight.scales.template ptr<char>() + 1; },
        "dequantize: weight.scales bf16[3, 3] is not aligned to its 2-byte elements"}});
  expect_refusals(
      {Format::int8, 32, DType::f16, true},
      {{[](auto& a) { a.weight.scales.dtype = DType::i8; },
        "dequantize: weight.scales is i8; accepted: f32, f16, bf16"},
       {[](auto& a) { a.weight.scales.template ptr<std::uint16_t>()[4] = 0x7c00; },
        "dequantize: weight.scales[1, 1] is inf; a scale must be finite"},
       {[](auto& a) { a.weight.zeros.dtype = DType::u8; },
        "dequantize: weight.zeros is u8; accepted: i8"},
       {[](auto& a) { a.weight.zeros = a.weight.zeros.slice(1, 0, 2); },
        "dequantize: weight.zeros must have shape [3, 3], got i8[3, 2] with strides [3, 1]"}});
  expect_refusals({Format::nf4, 64, DType::f32},
                  {{[](auto& a) { a.weight.scales.template ptr<float>()[3] = INFINITY; },
                    "dequantize: weight.scales[1, 1] is inf; a scale must be finite"}});
}

TEST(Dequantize, RefusesMalformedOutputs) {
  expect_refusals(
      {Format::int8, 0, DType::f32},
      {
          {[](auto& a) { a.out = Tensor(); }, "dequantize: out was not given"},
          {[](auto& a) { a.out.data = nullptr; },
           "dequantize: out f32[3, 70] has no data (null pointer)"},
          {[](auto& a) { a.out.data = a.out.template ptr<char>() + 2; },
           "dequantize: out f32[3, 70] is not aligned to its 4-byte elements"},
          {[](auto& a) { a.out.dtype = DType::i8; },
           "dequantize: out is i8; accepted: f32, f16, bf16"},
          {[](auto& a) { a.out.device = Device::cuda(); },
           "dequantize: out is on cuda:0, but the context runs on cpu"},
          {[](auto& a) { a.out = a.out.slice(1, 0, 69); },
           "dequantize: out must have shape [3, 70], got f32[3, 69] with strides [70, 1]"},
          {[](auto& a) { a.out.strides[0] = 0; },
           "dequantize: out reaches an element more than once: f32[3, 70] with strides [0, 1]"},
          {[](auto& a) {
             a.weight.scales = a.out.slice(0, 0, 1).view({70, 1}).slice(0, 0, 3);
           },
           "dequantize: out overlaps the memory of weight.scales"},
          {[](auto& a) { a.weight = Weight::dense(a.out); },
           "dequantize: out overlaps the memory of weight.data"},
      });
}

TEST_P(DequantizeTest, IsTraced) {
  const RandomWeight packed(ctx(), {Format::nvfp4, 16, DType::f8e4m3}, 3, 64);
  const TestTensor out = TestTensor::poisoned(ctx(), {3, 64}, DType::bf16);
  dequantize(ctx(), packed.weight, out);
  ASSERT_EQ(ctx().trace().calls("dequantize", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  const TraceEntry& entry = ctx().trace().entries()[0];
  EXPECT_EQ(entry.shapes, "weight nvfp4[3, 64] out bf16[3, 64]");
  EXPECT_EQ(entry.bytes, 3 * (32 + 4) + 4 + 3 * 64 * 2);
  EXPECT_EQ(entry.flops, 3 * 64);
}

}  // namespace
}  // namespace tessera::test
