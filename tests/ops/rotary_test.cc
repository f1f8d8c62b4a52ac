#include "tessera/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/rotary.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr RopeStyle kStyles[] = {RopeStyle::half_split, RopeStyle::interleaved};

struct RotaryCase {
  std::vector<std::int64_t> shape = {2, 3, 2, 20};
  std::int64_t dims = 20;
  RopeStyle style = RopeStyle::half_split;
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  bool position_per_batch = false;
  DType position_dtype = DType::i32;

  std::string text() const {
    return testing::PrintToString(shape) + " dims " + std::to_string(dims) + " " +
           (style == RopeStyle::half_split ? "half_split " : "interleaved ") +
           std::string(name(dtype)) + " " + to_string(layout) +
           (position_per_batch ? " positions of each batch " : " shared positions ") +
           std::string(name(position_dtype));
  }
};

Array rotary_inv_freq(std::int64_t dims) {
  Array result({dims / 2});
  const std::vector<float> values = rope_inv_freq(dims);
  result.data.assign(values.begin(), values.end());
  return result;
}

Array random_positions(const RotaryCase& c) {
  const std::vector<std::int64_t> shape =
      c.position_per_batch ? std::vector{c.shape[0], c.shape[1]} : std::vector{c.shape[1]};
  return random_integers(shape, 2, 0, 5000);
}

struct RotaryCall {
  TestTensor x, positions, inv_freq, out;
  RotaryArgs args;

  RotaryCall(Context& ctx, const RotaryCase& c) : RotaryCall(ctx, c, random_positions(c)) {}
  RotaryCall(Context& ctx, const RotaryCase& c, const Array& at)
      : x(ctx, random_normal(c.shape, 1), c.dtype, c.layout),
        positions(ctx, at, c.position_dtype, c.layout),
        inv_freq(ctx, rotary_inv_freq(c.dims), DType::f32),
        out(TestTensor::poisoned(ctx, c.shape, c.dtype, c.layout)),
        args{x, positions, {inv_freq, c.style}, out} {}

  Array expected() const {
    return reference::rotary(x.read(), positions.read(), inv_freq.read(), args.rope.style);
  }
};

// Elements stay below 4.5. Cosine and sine (2^-25 each), two products and a sum, all in f32, lose
// less than 2^-20 of that; then comes one rounding to the dtype (f16 has subnormals).
testing::AssertionResult rotary_accurate(const Array& actual, const Array& expected, DType dtype) {
  const double rounding = dtype == DType::f32 ? 0.0 : 0.51 * epsilon(dtype);
  const double subnormal = dtype == DType::f16 ? 0x1p-25 : 0.0;
  return close(actual, expected, rounding, subnormal + 0x1p-20);
}

void check_rotary(Context& ctx, const RotaryCase& c) {
  SCOPED_TRACE(c.text());
  RotaryCall call(ctx, c);
  rotary(ctx, call.args);
  EXPECT_TRUE(rotary_accurate(call.out.read(), call.expected(), c.dtype));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.x.untouched());

  RotaryCall again(ctx, c);
  rotary(ctx, again.args);
  EXPECT_TRUE(identical(again.out.read(), call.out.read()));
  again.args.out = again.x;  // in place
  rotary(ctx, again.args);
  EXPECT_TRUE(identical(again.x.read(), call.out.read()));
  EXPECT_TRUE(again.x.surroundings_intact());
}

class RotaryTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RotaryTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(RotaryTest, OddSizes) {
  for (RopeStyle style : kStyles) {
    for (std::int64_t dim : {2, 3, 7, 64, 80, 113, 239}) {
      for (std::int64_t dims : {std::int64_t{2}, dim / 8 * 2, dim / 2 * 2}) {  // partial and whole
        if (dims == 0) continue;
        check_rotary(ctx(), {.shape = {2, 3, 3, dim}, .dims = dims, .style = style});
      }
    }
  }
}

TEST_P(RotaryTest, DtypesLayoutsAndPositions) {
  for (RopeStyle style : kStyles) {
    for (DType dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (bool position_per_batch : {false, true}) {
          check_rotary(ctx(), {.dims = 14,
                               .style = style,
                               .dtype = dtype,
                               .layout = layout,
                               .position_per_batch = position_per_batch,
                               .position_dtype = position_per_batch ? DType::i64 : DType::i32});
        }
      }
    }
  }
}

// 2^24 + 1 is not an f32, and a position of 10^7 times an f32 frequency has an error of half a
// radian.
TEST_P(RotaryTest, FarPositionsAreExact) {
  for (DType position_dtype : {DType::i32, DType::i64}) {
    Array positions({7});
    positions.data = {0, 1, 4095, 131071, 1000003, 16777217, 50000001};
    const RotaryCase c{.shape = {1, 7, 2, 128}, .dims = 128, .position_dtype = position_dtype};
    RotaryCall call(ctx(), c, positions);
    rotary(ctx(), call.args);
    EXPECT_TRUE(rotary_accurate(call.out.read(), call.expected(), DType::f32));
  }
}

TEST_P(RotaryTest, WhatIsNotRotatedPassesThroughBitForBit) {
  for (DType dtype : kFloats) {
    RotaryCall call(ctx(), {.shape = {1, 3, 2, 21}, .dims = 6, .dtype = dtype});
    rotary(ctx(), call.args);
    const Array x = call.x.read(), out = call.out.read();
    for (std::int64_t s = 0; s < 3; ++s) {
      for (std::int64_t i = 6; i < 21; ++i) EXPECT_EQ(out.at(0, s, 1, i), x.at(0, s, 1, i));
    }
  }
}

// The reason for rotary embeddings: the product of two rotated vectors depends only on their
// distance.
TEST_P(RotaryTest, ProductsDependOnDistanceAlone) {
  for (RopeStyle style : kStyles) {
    const auto product_at = [&](double query_position, double key_position) {
      const RotaryCase c{.shape = {1, 2, 1, 64}, .dims = 64, .style = style};
      Array positions({2});
      positions.data = {query_position, key_position};
      RotaryCall call(ctx(), c, positions);
      rotary(ctx(), call.args);
      const Array out = call.out.read();
      double product = 0;
      for (std::int64_t i = 0; i < 64; ++i) product += out.at(0, 0, 0, i) * out.at(0, 1, 0, i);
      return product;
    };
    EXPECT_NEAR(product_at(17, 5), product_at(100012, 100000), 1e-4);
    EXPECT_GT(std::abs(product_at(17, 5) - product_at(25, 5)), 1e-2);
  }
}

TEST_P(RotaryTest, SameBitsForAnyThreadCount) {
  const RotaryCase c{.shape = {3, 61, 5, 64}, .dims = 32, .position_per_batch = true};
  const auto one = context(1), three = context(3);
  RotaryCall a(*one, c), b(*three, c);
  rotary(*one, a.args);
  rotary(*three, b.args);
  EXPECT_TRUE(identical(a.out.read(), b.out.read()));
}

TEST_P(RotaryTest, EmptyTensorsAreNoWork) {
  for (std::size_t d : {0u, 1u, 2u}) {
    RotaryCase c;
    c.shape[d] = 0;
    RotaryCall call(ctx(), c);
    rotary(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
  }
}

TEST_P(RotaryTest, IsTraced) {
  RotaryCall call(ctx(), {});
  rotary(ctx(), call.args);
  ASSERT_EQ(ctx().trace().calls("rotary", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "x f32[2, 3, 2, 20] positions i32[3]");
  EXPECT_EQ(entry.bytes, 2 * 240 * 4 + 3 * 4 + 10 * 4);
  EXPECT_EQ(entry.flops, 3 * 240);
}

TEST_P(RotaryTest, RefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  const std::vector<Refusal<RotaryArgs>> refusals = {
      {[](RotaryArgs& a) { a.x = {}; }, "rotary: x was not given"},
      {[](RotaryArgs& a) { a.x.device = Device::cuda(7); },
       "rotary: x is on cuda:7, but the context runs on " + here},
      {[](RotaryArgs& a) { a.x.dtype = DType::i8; }, "rotary: x is i8; accepted: f32, f16, bf16"},
      {[](RotaryArgs& a) { a.x = a.x.select(0, 0); },
       "rotary: x must have shape [any, any, any, any], got f32[3, 2, 20]"},
      {[](RotaryArgs& a) { a.x.data = nullptr; },
       "rotary: x f32[2, 3, 2, 20] has no data (null pointer)"},
      {[](RotaryArgs& a) { a.x.data = a.x.ptr<char>() + 2; },
       "rotary: x f32[2, 3, 2, 20] is not aligned to its 4-byte elements"},
      {[](RotaryArgs& a) { a.x.strides[0] = std::numeric_limits<std::int64_t>::max(); },
       "size 9223372036854775807 + 80 does not fit into 64 bits", ErrorCode::overflow},
      {[](RotaryArgs& a) { a.positions = {}; }, "rotary: positions was not given"},
      {[](RotaryArgs& a) { a.positions.dtype = DType::f32; },
       "rotary: positions is f32; accepted: i32, i64"},
      {[](RotaryArgs& a) { a.positions.shape[0] = 2; },
       "rotary: positions must have shape [3], got i32[2]"},
      {[](RotaryArgs& a) {
         a.positions = a.positions.view({3, 1});
       },
       "rotary: positions must have shape [2, 3], got i32[3, 1]"},
      {[](RotaryArgs& a) { a.rope = {}; }, "rotary: rope.inv_freq was not given"},
      {[](RotaryArgs& a) { a.rope.inv_freq.dtype = DType::f16; },
       "rotary: rope.inv_freq is f16; accepted: f32"},
      {[](RotaryArgs& a) { a.rope.inv_freq.shape[0] = 0; },
       "rotary: rope.inv_freq is empty: give one frequency for each pair"},
      {[](RotaryArgs& a) { a.rope.inv_freq.shape[0] = 11; },
       "rotary: rope.inv_freq rotates 11 pairs, but a head of x has 20 elements: at most 10 pairs"},
      {[](RotaryArgs& a) { a.out = {}; }, "rotary: out was not given"},
      {[](RotaryArgs& a) { a.out.dtype = DType::bf16; }, "rotary: out is bf16; accepted: f32"},
      {[](RotaryArgs& a) { a.out.shape[2] = 1; },
       "rotary: out must have the shape of x, f32[2, 3, 2, 20], got f32[2, 3, 1, 20] with strides "
       "[120, 40, 20, 1]"},
      {[](RotaryArgs& a) { a.out.strides[2] = 0; },
       "rotary: out reaches an element more than once: f32[2, 3, 2, 20] with strides [120, 40, 0, "
       "1]"},
      {[](RotaryArgs& a) { a.out.data = a.x.ptr<float>() + 4; },
       "rotary: out overlaps the memory of x"},
      {[](RotaryArgs& a) { a.rope.inv_freq.data = a.out.data; },  // not out: it may reach further
       "rotary: out overlaps the memory of rope.inv_freq"},
  };
  for (const Refusal<RotaryArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    RotaryCall call(ctx(), {});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { rotary(ctx(), call.args); }, refusal.text, refusal.code));
    for (const TestTensor* tensor : {&call.x, &call.positions, &call.inv_freq, &call.out}) {
      EXPECT_TRUE(tensor->untouched());
    }
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST_P(RotaryTest, NegativePositions) {
  const Array shared = [] {
    Array a({3});
    a.data = {4, -2, 0};
    return a;
  }();
  const Array of_each = [] {
    Array a({2, 3});
    a.data = {4, 2, 0, 1, 2, -7};
    return a;
  }();
  RotaryCall one(ctx(), {}, shared), two(ctx(), {.position_per_batch = true}, of_each);
  if (GetParam().is_cpu()) {
    EXPECT_TRUE(refuses([&] { rotary(ctx(), one.args); },
                        "rotary: positions[1] is -2; a position must be at least 0"));
    EXPECT_TRUE(refuses([&] { rotary(ctx(), two.args); },
                        "rotary: positions[1, 2] is -7; a position must be at least 0"));
    EXPECT_TRUE(one.out.untouched());
    EXPECT_TRUE(two.out.untouched());
  } else {  // checking would mean waiting: the angle is negative like the position
    rotary(ctx(), one.args);
    rotary(ctx(), two.args);
    EXPECT_TRUE(rotary_accurate(one.out.read(), one.expected(), DType::f32));
    EXPECT_TRUE(rotary_accurate(two.out.read(), two.expected(), DType::f32));
  }
}

TEST(RopeInvFreq, PowersOfTheta) {
  const std::vector<float> values = rope_inv_freq(6, 1000.0);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_FLOAT_EQ(values[0], 1.f);
  EXPECT_FLOAT_EQ(values[1], 0.1f);
  EXPECT_FLOAT_EQ(values[2], 0.01f);
  EXPECT_FLOAT_EQ(rope_inv_freq(128)[32], 0.01f);  // theta is 10000
}

TEST(RopeInvFreq, RefusesWhatHasNoPairs) {
  EXPECT_TRUE(refuses([] { rope_inv_freq(0); },
                      "rope_inv_freq: dims is 0; it must be even and positive, two for each pair"));
  EXPECT_TRUE(refuses([] { rope_inv_freq(7); },
                      "rope_inv_freq: dims is 7; it must be even and positive, two for each pair"));
  EXPECT_TRUE(refuses([] { rope_inv_freq(8, -1.0); },
                      "rope_inv_freq: theta is -1; it must be a positive number"));
}

TEST(RotarySimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (RopeStyle style : kStyles) {
      for (DType dtype : kFloats) {
        for (std::int64_t dims : {2, 6, 16, 64, 238}) {
          check_rotary(ctx, {.shape = {1, 3, 2, 239},
                             .dims = dims,
                             .style = style,
                             .dtype = dtype,
                             .layout = Layout::sliced});
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::test
