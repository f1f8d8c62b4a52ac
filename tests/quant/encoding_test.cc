// Which code and which scale each weight gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quant/cases.h"
#include "reference/quant.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

// Checks that each code stands for the nearest value on the grid of its stored scale.
//
// The encoder rounds x / scale to f32. For nvfp4 it rounds scale * tensor_scale before that.
// Together this is a relative error of at most 2^-23, so x may lie that far beyond the half-way
// point. The value it gets is then 2 * 2^-23 |x| further away than the nearest.
testing::AssertionResult codes_are_nearest(const Weight& weight, const Array& dense) {
  std::vector<std::vector<double>> values(16);  // for each zero point
  for (int zero = 0; zero < 16; ++zero) {
    values[static_cast<std::size_t>(zero)] = reference::code_values(weight.format, zero);
  }
  for (std::int64_t row = 0; row < weight.out_features; ++row) {
    for (std::int64_t column = 0; column < weight.in_features; ++column) {
      const auto& grid = values[static_cast<std::size_t>(reference::zero_at(weight, row, column))];
      const double scale = reference::scale_at(weight, row, column), x = dense.at(row, column);
      const int code = reference::code_at(weight, row, column);
      const int nearest = reference::nearest_code(grid, x / scale);
      const double error = std::abs(grid[static_cast<std::size_t>(code)] * scale - x);
      const double least = std::abs(grid[static_cast<std::size_t>(nearest)] * scale - x);
      if (!(error <= least + 0x1p-22 * std::abs(x))) {
        return testing::AssertionFailure()
               << "[" << row << ", " << column << "]: " << x << " is coded as " << code
               << " of scale " << scale << ", but " << nearest << " is nearer";
      }
    }
  }
  return testing::AssertionSuccess();
}

TEST(Encoding, EveryCodeIsNearestOnRaggedRows) {
  Context ctx({.threads = 2});
  for (const std::int64_t in : {1, 15, 17, 31, 33, 63, 65, 127, 129, 239, 256}) {
    for (const std::int64_t out : {1, 3, 7}) {
      const TestTensor dense(ctx, random_normal({out, in}, 1, 0.1), DType::f32);
      for (const QuantizeOptions& options : every_way()) {
        SCOPED_TRACE(text(options) + " " + std::to_string(out) + " x " + std::to_string(in));
        const PackedWeight packed = quantize(ctx, dense, options);
        ASSERT_TRUE(codes_are_nearest(packed.weight, dense.read()));
      }
    }
  }
}

// The values of the codes that from_max uses. It maps the largest magnitude to 7 or 127, so that -8
// and -128 stay unused.
std::vector<double> values_of_from_max(const std::vector<double>& grid,
                                       const QuantizeOptions& options) {
  std::vector<double> values;
  for (const double value : grid) {
    const bool lowest = (options.format == Format::int8 && value == -128) ||
                        (options.format == Format::int4 && value == -8);
    if (!std::isnan(value) && !lowest) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  return values;
}

// A row of blocks. Each block begins with the two ends of a grid, so that from_max finds
// the scale 1. The points half-way between the grid's values follow.
std::vector<double> row_of_ties(const std::vector<double>& values, std::int64_t block) {
  std::vector<double> row;
  for (std::size_t tie = 0; tie + 1 < values.size();) {
    row.push_back(values.front());
    row.push_back(values.back());
    for (std::int64_t i = 2; i < block && tie + 1 < values.size(); ++i, ++tie) {
      row.push_back((values[tie] + values[tie + 1]) / 2);
    }
  }
  return row;
}

TEST(Encoding, TiesGoToTheEvenCode) {
  Context ctx({.threads = 2});
  for (const QuantizeOptions& options : every_format(ScaleSearch::from_max)) {
    SCOPED_TRACE(text(options));
    // A chosen zero point is odd, so that even codes are odd numbers.
    const int zero = options.zero_point ? 5 : reference::default_zero(options.format);
    const std::vector<double> grid = reference::code_values(options.format, zero);
    const std::int64_t group =
        options.group == -1 ? info(options.format).default_group : options.group;
    const std::vector<double> row =
        row_of_ties(values_of_from_max(grid, options), group == 0 ? 1000 : group);
    Array values({2, static_cast<std::int64_t>(row.size())});
    std::copy(row.begin(), row.end(), values.data.begin());
    values.at(1, 0) = 6 * 448;  // makes nvfp4's tensor scale 1
    const TestTensor dense(ctx, values, DType::f32);
    const Array x = dense.read();
    const PackedWeight packed = quantize(ctx, dense, options);
    for (std::int64_t k = 0; k < values.size(1); ++k) {
      ASSERT_EQ(reference::scale_at(packed.weight, 0, k), 1.0);
      ASSERT_EQ(reference::zero_at(packed.weight, 0, k), zero);
      ASSERT_EQ(reference::code_at(packed.weight, 0, k), reference::nearest_code(grid, x.at(0, k)))
          << x.at(0, k);
    }
  }
}

// from_max uses the formulas that everyone uses. (Only nvfp4 may take the next lower code, because
// it prefers the finer grid.)
TEST(Encoding, FromMaxFollowsTheFormulas) {
  Context ctx({.threads = 2});
  const TestTensor dense(ctx, random_normal({5, 239}, 12), DType::f32);
  const Array x = dense.read();
  double largest_of_all = 0;
  for (const double value : x.data) largest_of_all = std::max(largest_of_all, std::abs(value));
  for (const QuantizeOptions& options : every_format(ScaleSearch::from_max)) {
    if (options.zero_point) continue;
    SCOPED_TRACE(text(options));
    const PackedWeight packed = quantize(ctx, dense, options);
    const Weight& weight = packed.weight;
    const std::int64_t group = weight.group == 0 ? 239 : weight.group;
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t begin = 0; begin < 239; begin += group) {
        double largest = 0;
        for (std::int64_t k = begin; k < std::min<std::int64_t>(239, begin + group); ++k) {
          largest = std::max(largest, std::abs(x.at(row, k)));
        }
        const double scale = reference::scale_at(weight, row, begin);
        switch (options.format) {
          case Format::nvfp4: {
            const double wanted = largest / 6 / double{weight.tensor_scale};
            const double code_value = scale / double{weight.tensor_scale};
            EXPECT_LE(code_value, wanted * (1 + 1.0 / 16));
            EXPECT_GE(code_value, wanted * (1 - 1.0 / 8));
            break;
          }
          case Format::mxfp4:
            EXPECT_EQ(scale, std::exp2(std::floor(std::log2(largest)) - 2));
            break;
          case Format::nf4:
            EXPECT_EQ(scale, largest);
            break;
          case Format::int4:
            EXPECT_NEAR(scale, largest / 7, largest / 7 * 0x1p-8);
            break;
          case Format::int8:
            EXPECT_EQ(scale, static_cast<float>(largest) / 127.f);
            break;
          default:
            EXPECT_EQ(scale, static_cast<float>(largest) / 448.f);
        }
      }
    }
    if (options.format == Format::nvfp4) {
      EXPECT_EQ(weight.tensor_scale, static_cast<float>(largest_of_all) / (6.f * 448.f));
    }
  }
}

// The bits are a promise: they are the same on every machine, whatever the compiler makes of the
// loops. A change here changes what quantize() returns, so it must be intended.
TEST(Encoding, BitsArePinned) {
  const struct {
    Format format;
    std::int64_t group;
    bool zero_point;
    std::uint64_t hash;
  } rows[] = {
      {Format::nvfp4, -1, false, 0x51d55a0bf0dfab1f},
      {Format::mxfp4, -1, false, 0xd3fd4ef9baad7069},
      {Format::nf4, -1, false, 0x7a2b4b49454190b3},
      {Format::int4, 32, false, 0x25bab590e3e0e00f},
      {Format::int4, 128, true, 0x9b864d308015c4e3},
      {Format::int8, 0, false, 0x52ad0c6acf2eca49},
      {Format::int8, 32, false, 0x148490dda12f1ef6},
      {Format::fp8, -1, false, 0xc21c5285517a6e30},
  };
  Context ctx({.threads = 2});
  // Sums of integers. random_normal() needs a logarithm, and logarithms differ between machines.
  Array values = random_integers({33, 300}, 13, -1000, 1000);
  const Array more = random_integers({33, 300}, 14, -1000, 1000);
  for (std::size_t i = 0; i < values.data.size(); ++i) values.data[i] += more.data[i];
  const TestTensor dense(ctx, values, DType::f32);
  for (const auto& row : rows) {
    const QuantizeOptions options{
        .format = row.format, .group = row.group, .zero_point = row.zero_point};
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const unsigned char byte : bytes_of(quantize(ctx, dense, options).weight)) {
      hash = (hash ^ byte) * 0x100000001b3u;
    }
    EXPECT_EQ(hash, row.hash) << text(options) << " 0x" << std::hex << hash;
  }
}

// A weight that holds every code of its format in every block. Its scales can be computed again
// from the largest value.
PackedWeight every_code(Context& ctx, const QuantizeOptions& options) {
  constexpr std::int64_t rows = 3, columns = 256;
  const TestTensor any(ctx, random_normal({rows, columns}, 5), DType::f32);
  PackedWeight packed = quantize(ctx, any, options);
  Weight& weight = packed.weight;
  for (std::int64_t i = 0; i < weight.data.numel(); ++i) {
    auto& byte = weight.data.ptr<std::uint8_t>()[i];
    if (info(weight.format).bits == 4) {
      const int first = static_cast<int>(2 * i % 16);
      byte = static_cast<std::uint8_t>(first | (first + 1) << 4);
    } else {
      // Every code except NaN and -128, which from_max never takes.
      const int code = static_cast<int>(i % 256);
      const bool never = weight.format == Format::fp8 ? (code & 0x7f) == 0x7f : code == 128;
      byte = static_cast<std::uint8_t>(never ? 0 : code);
    }
  }
  if (weight.format == Format::nvfp4) {
    std::memset(weight.scales.data, 0x7e, static_cast<std::size_t>(weight.scales.bytes()));
    weight.tensor_scale = 0x1p-10f;
  }
  return packed;
}

TEST(Encoding, EveryCodeSurvivesDecodeAndEncode) {
  Context ctx({.threads = 2});
  std::vector<QuantizeOptions> ways;
  for (const QuantizeOptions& options : every_format(ScaleSearch::from_max)) {
    const bool minus_8 = options.format == Format::int4 && !options.zero_point;
    if (minus_8 || options.group == 7) continue;  // from_max stays above -8; 7 holds no 256 codes
    ways.push_back(options);
  }
  ways.push_back({.format = Format::int4, .group = 32});
  for (const QuantizeOptions& options : ways) {
    SCOPED_TRACE(text(options));
    PackedWeight packed = every_code(ctx, options);
    if (options.format == Format::int8 && options.group == 32) {
      // A block of 32 holds only some of the 256 codes, so each block ends with the largest.
      for (std::int64_t i = 31; i < packed.weight.data.numel(); i += 32) {
        packed.weight.data.ptr<std::int8_t>()[i] = 127;
      }
    }
    const TestTensor dense(ctx, reference::dequantize(packed.weight), DType::f32);
    const PackedWeight again = quantize(ctx, dense, options);
    EXPECT_EQ(bytes_of(again.weight), bytes_of(packed.weight));
  }
}

// A factor that is a power of two changes the scale and nothing else.
TEST(Encoding, PowersOfTwoPassThrough) {
  Context ctx({.threads = 2});
  const Array values = random_normal({3, 239}, 6);
  for (const QuantizeOptions& options : every_way()) {
    const Array expected =
        reference::dequantize(quantize(ctx, TestTensor(ctx, values, DType::f32), options).weight);
    for (const int exponent : {-60, -3, 2, 80}) {
      SCOPED_TRACE(text(options) + " times 2^" + std::to_string(exponent));
      Array scaled = values, scaled_expected = expected;
      for (double& x : scaled.data) x = std::ldexp(x, exponent);
      for (double& x : scaled_expected.data) x = std::ldexp(x, exponent);
      const TestTensor dense(ctx, scaled, DType::f32);
      EXPECT_TRUE(
          identical(reference::dequantize(quantize(ctx, dense, options).weight), scaled_expected));
    }
  }
}

Array decoded(Context& ctx, const Array& values, const QuantizeOptions& options) {
  const TestTensor dense(ctx, values, DType::f32);
  const PackedWeight packed = quantize(ctx, dense, options);
  for (std::int64_t k = 0; k < values.size(1); ++k) {  // normal, so that x / scale is a number
    EXPECT_GE(std::abs(reference::scale_at(packed.weight, 0, k)), double{FLT_MIN});
  }
  const TestTensor out = TestTensor::poisoned(ctx, values.shape, DType::f32);
  dequantize(ctx, packed.weight, out);
  return out.read();
}

TEST(Encoding, ZerosStayZeros) {
  Context ctx({.threads = 2});
  const Array zeros({3, 239});
  Array zero_row = random_normal({3, 239}, 7), zero_block = zero_row;
  std::fill_n(&zero_row.at(1, 0), 239, 0.0);
  std::fill_n(&zero_block.at(1, 128), 239 - 128, 0.0);
  for (const QuantizeOptions& options : every_way()) {
    SCOPED_TRACE(text(options));
    EXPECT_TRUE(identical(decoded(ctx, zeros, options), zeros));
    const Array with_row = decoded(ctx, zero_row, options);
    for (std::int64_t k = 0; k < 239; ++k) ASSERT_EQ(with_row.at(1, k), 0.0);
    const Array with_block = decoded(ctx, zero_block, options);
    for (std::int64_t k = 128; k < 239; ++k) ASSERT_EQ(with_block.at(1, k), 0.0);
  }
}

// The largest and the smallest f32 of both signs, alone and among ordinary numbers. Every decoded
// value is finite, and its error is at most a third of the largest weight. (mxfp4 clips 2^128 to
// 6 * 2^125, which is a quarter less. No other format comes near that.)
TEST(Encoding, HugeAndTinyWeightsStayFinite) {
  Context ctx({.threads = 2});
  const double huge = FLT_MAX, tiny = std::numeric_limits<float>::denorm_min();
  for (const double extreme :
       {huge, -huge, 0.9 * huge, tiny, -tiny, 1000 * tiny, double{FLT_MIN}}) {
    for (const double other : {extreme, -extreme, 0.7 * extreme, 0.0, 1.0, tiny}) {
      Array values({2, 40});
      for (std::size_t i = 0; i < values.data.size(); ++i) {
        values.data[i] = static_cast<float>(i % 3 == 0 ? extreme : other);
      }
      const double largest = std::max(std::abs(extreme), std::abs(other));
      for (const QuantizeOptions& options : every_way()) {
        SCOPED_TRACE(text(options) + " " + std::to_string(extreme) + " " + std::to_string(other));
        const Array result = decoded(ctx, values, options);
        for (std::size_t i = 0; i < values.data.size(); ++i) {
          ASSERT_TRUE(std::isfinite(result.data[i]));
          // The grid has no values far below FLT_MIN. The error there is at most FLT_MIN.
          ASSERT_LE(std::abs(result.data[i] - values.data[i]), largest / 3 + double{FLT_MIN});
        }
      }
    }
  }
}

// A block whose weights are far below the largest of the tensor, where E4M3 has only its smallest
// scales left. Its scale must not become 0.
TEST(Encoding, SmallBlocksSurviveInNvfp4) {
  Context ctx({.threads = 2});
  for (const auto search : {ScaleSearch::least_squares, ScaleSearch::from_max}) {
    Array values = random_normal({2, 64}, 15);
    for (std::int64_t k = 0; k < 64; ++k) values.at(1, k) *= 3e-6;
    const Array result = decoded(ctx, values, {.format = Format::nvfp4, .search = search});
    double error = 0, norm = 0;
    for (std::int64_t k = 0; k < 64; ++k) {
      error += std::pow(result.at(1, k) - values.at(1, k), 2);
      norm += std::pow(values.at(1, k), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.3);
  }
}

// Two's complement reaches one further down than up. The encoder uses that code.
TEST(Encoding, Int8UsesItsLowestCode) {
  Context ctx({.threads = 2});
  Array values = random_integers({1, 8192}, 16, -128, 128);
  values.at(0, 0) = 127.0 * 32 / 29;  // worth clipping: all others are then exact
  const TestTensor dense(ctx, values, DType::f32);
  const PackedWeight packed = quantize(ctx, dense, {.format = Format::int8});
  const auto* codes = packed.weight.data.ptr<std::int8_t>();
  EXPECT_EQ(*std::min_element(codes, codes + 8192), -128);
  EXPECT_TRUE(codes_are_nearest(packed.weight, dense.read()));
}

}  // namespace
}  // namespace tessera::test
