// The numbers that codes stand for. Tests are exhaustive where there are few; otherwise they use a
// dense sweep of f32.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/nf4.h"
#include "quant/rounding.h"
#include "reference/quant.h"

namespace tessera::test {
namespace {

// A grid of codes: how src/quant reads and writes them, and their values by definition.
struct Grid {
  std::string name;
  std::vector<double> values;  // of code 0, 1, ...
  std::function<float(int)> decode;
  std::function<int(float)> encode;
  std::function<float(float)> round;
};

Grid integers(Format format, int zero, float low, float high) {
  const auto code = [=](float x) { return round_to_code(x, static_cast<float>(zero), low, high); };
  const int codes = format == Format::int4 ? 16 : 256;
  return {.name = std::string(name(format)) + " zero " + std::to_string(zero),
          .values = reference::code_values(format, zero),
          .decode = [=](int c) { return static_cast<float>((c > high ? c - codes : c) - zero); },
          .encode = [=](float x) { return (static_cast<int>(code(x)) + codes) % codes; },
          .round = [=](float x) { return code(x) - static_cast<float>(zero); }};
}

std::vector<Grid> grids() {
  const auto byte = [](int code) { return static_cast<std::uint8_t>(code); };
  std::vector<Grid> all = {
      {"e2m1", reference::code_values(Format::nvfp4), [=](int c) { return e2m1_decode(byte(c)); },
       e2m1_encode, e2m1_round},
      {"e4m3", reference::code_values(Format::fp8), [=](int c) { return e4m3_decode(byte(c)); },
       e4m3_encode, e4m3_round},
      {"nf4", reference::code_values(Format::nf4),
       [](int c) { return kNf4Values[static_cast<std::size_t>(c)]; }, nf4_encode, nf4_round},
      integers(Format::int8, 0, -128.f, 127.f),
  };
  for (int zero = 0; zero < 16; ++zero) all.push_back(integers(Format::int4, zero, 0.f, 15.f));
  return all;
}

testing::AssertionResult encodes_to_nearest(const Grid& grid, float x) {
  const int expected = reference::nearest_code(grid.values, x);
  const int actual = grid.encode(x);
  // Integers have one zero; a float's -0.f and 0.f are two codes.
  if (actual != expected) {
    return testing::AssertionFailure()
           << grid.name << ": " << x << " is coded as " << actual << ", not " << expected;
  }
  if (grid.round(x) != grid.decode(actual)) {
    return testing::AssertionFailure() << grid.name << ": " << x << " is rounded to "
                                       << grid.round(x) << ", but coded as " << grid.decode(actual);
  }
  return testing::AssertionSuccess();
}

TEST(Codes, EveryCodeHasTheValueOfItsDefinition) {
  for (const Grid& grid : grids()) {
    for (int code = 0; code < static_cast<int>(grid.values.size()); ++code) {
      const double expected = grid.values[static_cast<std::size_t>(code)];
      const float actual = grid.decode(code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << grid.name << " " << code;
      } else {
        EXPECT_EQ(actual, expected) << grid.name << " " << code;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << grid.name << " " << code;
      }
    }
  }
}

TEST(Codes, EveryCodeRoundTrips) {
  for (const Grid& grid : grids()) {
    for (int code = 0; code < static_cast<int>(grid.values.size()); ++code) {
      EXPECT_EQ(grid.encode(grid.decode(code)), code) << grid.name;
    }
  }
}

// Tests the point half-way between any two neighbours, and the next f32 on each side of it.
TEST(Codes, TiesGoToTheEvenCode) {
  for (const Grid& grid : grids()) {
    std::vector<double> sorted;
    for (const double value : grid.values) {
      if (!std::isnan(value)) sorted.push_back(value);
    }
    std::sort(sorted.begin(), sorted.end());
    int ties = 0;
    for (std::size_t i = 0; i + 1 < sorted.size(); ++i) {
      const double middle = (sorted[i] + sorted[i + 1]) / 2;
      const float near = static_cast<float>(middle);
      ties += near == middle && sorted[i] != sorted[i + 1];
      for (const float x :
           {near, std::nextafter(near, -INFINITY), std::nextafter(near, INFINITY)}) {
        ASSERT_TRUE(encodes_to_nearest(grid, x));
      }
    }
    EXPECT_GT(ties, 0) << grid.name;  // the sweep really met some
  }
}

TEST(Codes, NearestOverADenseSweep) {
  for (const Grid& grid : grids()) {
    const int steps = grid.values.size() == 16 ? 200'000 : 20'000;
    const double reach =
        1.25 * *std::max_element(grid.values.begin(), grid.values.end(), [](double a, double b) {
          return std::isnan(a) || std::abs(a) < std::abs(b);
        });
    for (int i = 0; i <= steps; ++i) {
      const double x = std::abs(reach) * (2.0 * i / steps - 1.0);
      ASSERT_TRUE(encodes_to_nearest(grid, static_cast<float>(x)));
    }
  }
}

// About every 2^15th f32. They include all exponents, subnormals, and numbers that saturate.
TEST(Codes, NearestOverAllMagnitudes) {
  for (const Grid& grid : grids()) {
    for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 0x8007u) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      ASSERT_TRUE(encodes_to_nearest(grid, x));
      ASSERT_TRUE(encodes_to_nearest(grid, -x));
    }
  }
}

TEST(Codes, E4M3OfWhatIsNoNumber) {
  EXPECT_EQ(e4m3_encode(NAN), 0x7f);
  EXPECT_EQ(e4m3_encode(INFINITY), 0x7e);
  EXPECT_EQ(e4m3_encode(-INFINITY), 0xfe);
}

TEST(Codes, E8M0IsEveryPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_decode(static_cast<std::uint8_t>(code)), reference::e8m0_value(code)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_decode(255)));
}

// The table's definition (QLoRA, section 3): quantiles of the normal distribution at eight evenly
// spaced probabilities above one half and seven below, with 0 between, divided by the largest.
TEST(Codes, Nf4IsQuantilesOfTheNormalDistribution) {
  constexpr double kOffset = 0.9677083;
  const auto quantile = [](double p) {  // by bisection
    double low = 0, high = 10;
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::numbers::sqrt2) < p ? low : high) = middle;
    }
    return low;
  };
  std::vector<double> expected;
  expected.reserve(16);
  for (int i = 0; i < 7; ++i) expected.push_back(-quantile(kOffset + (0.5 - kOffset) * i / 7));
  expected.push_back(0);
  for (int i = 7; i >= 0; --i) expected.push_back(quantile(kOffset + (0.5 - kOffset) * i / 8));
  const double largest = expected.back();
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(kNf4Values[i], expected[i] / largest, 1e-6) << i;
  }
}

}  // namespace
}  // namespace tessera::test
