#include "tessera/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/quant.h"

namespace tessera::test {
namespace {

// What f16 and bf16 have in common, so that every property is stated once.
struct F16 {
  static float decode(std::uint16_t bits) { return to_float(Half{bits}); }
  static std::uint16_t encode(float x) { return to_f16(x).bits; }
  static double value(std::uint16_t bits) { return reference::f16_value(bits); }
  static constexpr std::uint16_t kInfinity = 0x7c00;
};
struct Bf16 {
  static float decode(std::uint16_t bits) { return to_float(BFloat16{bits}); }
  static std::uint16_t encode(float x) { return to_bf16(x).bits; }
  static double value(std::uint16_t bits) { return reference::bf16_value(bits); }
  static constexpr std::uint16_t kInfinity = 0x7f80;
};

template <typename T>
class HalfTest : public testing::Test {};
using Types = testing::Types<F16, Bf16>;
TYPED_TEST_SUITE(HalfTest, Types);

TYPED_TEST(HalfTest, EveryPatternDecodesToItsValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float actual = TypeParam::decode(pattern);
    const double expected = TypeParam::value(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(HalfTest, EveryPatternSurvivesTheWayToF32AndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const std::uint16_t back = TypeParam::encode(TypeParam::decode(pattern));
    if (std::isnan(TypeParam::value(pattern))) {
      ASSERT_TRUE(std::isnan(TypeParam::value(back))) << bits;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << bits;
    } else {
      ASSERT_EQ(back, pattern);
    }
  }
}

// Tests the f32 numbers at and around the midpoint of each pattern and the next, with both signs.
// After the largest finite value, the next one is what the exponent would give if it did not mean
// infinity.
TYPED_TEST(HalfTest, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < TypeParam::kInfinity; ++bits) {
    const auto below = static_cast<std::uint16_t>(bits),
               above = static_cast<std::uint16_t>(bits + 1);
    const double low = TypeParam::value(below);
    const double high = above == TypeParam::kInfinity
                            ? 2 * low - TypeParam::value(static_cast<std::uint16_t>(bits - 1))
                            : TypeParam::value(above);
    const double middle = (low + high) / 2;  // also exact in f32: it needs only one bit more
    const float tie = static_cast<float>(middle);
    if (std::isfinite(tie)) {  // bf16's last tie is not an f32
      ASSERT_EQ(static_cast<double>(tie), middle);
      ASSERT_EQ(TypeParam::encode(tie), bits % 2 == 0 ? below : above) << bits;
      ASSERT_EQ(TypeParam::encode(-tie), (bits % 2 == 0 ? below : above) | 0x8000) << bits;
      ASSERT_EQ(TypeParam::encode(std::nextafter(tie, 0.f)), below) << bits;
      ASSERT_EQ(TypeParam::encode(std::nextafter(tie, INFINITY)), above) << bits;
    }
  }
}

TYPED_TEST(HalfTest, ExtremesOfF32) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(TypeParam::encode(INFINITY), TypeParam::kInfinity);
  EXPECT_EQ(TypeParam::encode(-INFINITY), TypeParam::kInfinity | 0x8000);
  EXPECT_EQ(TypeParam::encode(kLargest), TypeParam::kInfinity);
  EXPECT_EQ(TypeParam::encode(kSmallest), 0);
  EXPECT_EQ(TypeParam::encode(-kSmallest), 0x8000);
  EXPECT_EQ(TypeParam::encode(-0.f), 0x8000);
  // A NaN whose payload lies in bits that are cut off must not become infinity.
  EXPECT_TRUE(std::isnan(TypeParam::value(TypeParam::encode(std::bit_cast<float>(0x7f800001u)))));
}

TEST(HalfArrays, ConvertElementByElement) {
  const std::vector<float> values{0.f, -1.5f, 65520.f, 1e-8f, 3.14159265f};
  const std::vector<Half> f16 = to_f16(values);
  const std::vector<BFloat16> bf16 = to_bf16(values);
  const std::vector<float> from_f16 = to_float(f16), from_bf16 = to_float(bf16);
  ASSERT_EQ(f16.size(), values.size());
  ASSERT_EQ(bf16.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f16[i].bits, to_f16(values[i]).bits);
    EXPECT_EQ(bf16[i].bits, to_bf16(values[i]).bits);
    EXPECT_EQ(from_f16[i], to_float(f16[i]));
    EXPECT_EQ(from_bf16[i], to_float(bf16[i]));
  }
  EXPECT_EQ(from_f16[1], -1.5f);
  EXPECT_EQ(from_f16[2], INFINITY);
  EXPECT_EQ(from_bf16[4], 3.140625f);
}

}  // namespace
}  // namespace tessera::test
