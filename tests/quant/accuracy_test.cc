// How close packed weights come to the dense ones: ||w - dequantized|| / ||w||.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "quant/cases.h"
#include "reference/quant.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kRows = 512, kColumns = 1024;

double error_of(const Array& weights, const QuantizeOptions& options, double* bits = nullptr) {
  Context ctx({.threads = 2});
  const TestTensor dense(ctx, weights, DType::f32);
  const PackedWeight packed = quantize(ctx, dense, options);
  if (bits) {
    *bits = 8.0 * static_cast<double>(packed.weight.bytes()) / static_cast<double>(weights.numel());
  }
  return relative_error(reference::dequantize(packed.weight), dense.read());
}

// Student's t with 4 degrees of freedom: it has outliers, as trained weights do.
Array heavy_tailed(const std::vector<std::int64_t>& shape) {
  Array result = random_normal(shape, 21);
  Array chi_squared(shape);
  for (std::uint64_t seed = 22; seed < 26; ++seed) {
    const Array normal = random_normal(shape, seed);
    for (std::size_t i = 0; i < normal.data.size(); ++i) {
      chi_squared.data[i] += normal.data[i] * normal.data[i];
    }
  }
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    result.data[i] /= std::sqrt(chi_squared.data[i] / 4);
  }
  return result;
}

TEST(Accuracy, BarsOnNormalWeights) {
  constexpr auto kSearch = ScaleSearch::least_squares;
  constexpr auto kMax = ScaleSearch::from_max;
  const struct {
    QuantizeOptions options;
    double bar;
  } rows[] = {
      {{.format = Format::nvfp4, .search = kSearch}, 0.083},
      {{.format = Format::nvfp4, .search = kMax}, 0.095},
      {{.format = Format::mxfp4, .search = kSearch}, 0.112},
      {{.format = Format::mxfp4, .search = kMax}, 0.116},
      {{.format = Format::nf4, .search = kSearch}, 0.087},
      {{.format = Format::nf4, .search = kMax}, 0.093},
      {{.format = Format::int4, .group = 32, .search = kSearch}, 0.083},
      {{.format = Format::int4, .group = 32, .search = kMax}, 0.098},
      {{.format = Format::int4, .group = 64, .search = kSearch}, 0.091},
      {{.format = Format::int4, .group = 128, .search = kSearch}, 0.098},
      {{.format = Format::int4, .group = 128, .search = kMax}, 0.118},
      {{.format = Format::int4, .group = 32, .zero_point = true, .search = kSearch}, 0.078},
      {{.format = Format::int4, .group = 32, .zero_point = true, .search = kMax}, 0.082},
      {{.format = Format::int4, .group = 128, .zero_point = true, .search = kSearch}, 0.096},
      {{.format = Format::int4, .group = 128, .zero_point = true, .search = kMax}, 0.101},
      {{.format = Format::int8, .group = 0, .search = kSearch}, 0.0080},
      {{.format = Format::int8, .group = 0, .search = kMax}, 0.0080},
      {{.format = Format::int8, .group = 32, .search = kSearch}, 0.0052},
      {{.format = Format::int8, .group = 32, .search = kMax}, 0.0054},
      {{.format = Format::fp8, .search = kSearch}, 0.0256},
      {{.format = Format::fp8, .search = kMax}, 0.0266},
  };
  const Array weights = random_normal({kRows, kColumns}, 11);
  std::printf("  relative error on normal weights, and bits for each weight\n");
  for (const auto& row : rows) {
    double bits = 0;
    const double error = error_of(weights, row.options, &bits);
    std::printf("  %-36s %.4f  %.3f\n", text(row.options).c_str(), error, bits);
    EXPECT_LE(error, row.bar) << text(row.options);
  }
}

TEST(Accuracy, SearchBeatsTheLargestValue) {
  for (const Array& weights :
       {random_normal({64, 512}, 12, 0.02), heavy_tailed({64, 512}), random_normal({1, 16}, 13)}) {
    for (QuantizeOptions options : every_format(ScaleSearch::least_squares)) {
      const double searched = error_of(weights, options);
      options.search = ScaleSearch::from_max;
      EXPECT_LE(searched, error_of(weights, options)) << text(options);
    }
  }
}

// The squared error of one block when it is encoded with this scale.
double block_error(const Array& weights, std::int64_t begin, std::int64_t group, double scale) {
  static const std::vector<double> grid = reference::code_values(Format::nvfp4);
  double sum = 0;
  for (std::int64_t i = begin; i < begin + group; ++i) {
    const double x = weights.data[static_cast<std::size_t>(i)];
    const auto code = static_cast<std::size_t>(reference::nearest_code(grid, x / scale));
    sum += (grid[code] * scale - x) * (grid[code] * scale - x);
  }
  return sum;
}

// Compares the short search with a search over all scales. The error is the same for mxfp4, and at
// most half a percent larger for nvfp4.
TEST(Accuracy, ShortSearchFindsTheBestScales) {
  Context ctx({.threads = 2});
  const TestTensor dense(ctx, random_normal({8, 256}, 14), DType::f32);
  const Array weights = dense.read();
  for (const Format format : {Format::nvfp4, Format::mxfp4}) {
    const PackedWeight packed = quantize(ctx, dense, {.format = format});
    const std::int64_t group = packed.weight.group;
    double best = 0;
    for (std::int64_t begin = 0; begin < weights.numel(); begin += group) {
      double least = INFINITY;
      for (int code = 1; code < (format == Format::nvfp4 ? 127 : 255); ++code) {
        const double scale = format == Format::nvfp4
                                 ? reference::e4m3_value(code) * double{packed.weight.tensor_scale}
                                 : reference::e8m0_value(code);
        least = std::min(least, block_error(weights, begin, group, scale));
      }
      best += least;
    }
    double norm = 0;
    for (const double x : weights.data) norm += x * x;
    const double error = relative_error(reference::dequantize(packed.weight), weights);
    const double allowed = format == Format::nvfp4 ? 1.005 : 1.000001;
    EXPECT_LE(error, allowed * std::sqrt(best / norm)) << name(format);
  }
}

}  // namespace
}  // namespace tessera::test
