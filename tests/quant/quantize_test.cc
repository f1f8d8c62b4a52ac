#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quant/cases.h"
#include "reference/quant.h"
#include "support/compare.h"
#include "support/refusal.h"
#include "support/test_tensor.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

Context make_context(int threads = 2) { return Context({.threads = threads, .trace = true}); }

// All bytes of codes, scales and zero points, and the tensor scale.
std::vector<unsigned char> bytes_of(const Weight& weight) {
  std::vector<unsigned char> bytes;
  for (const Tensor* part : {&weight.data, &weight.scales, &weight.zeros}) {
    const auto* begin = part->ptr<const unsigned char>();
    bytes.insert(bytes.end(), begin, begin + part->bytes());
  }
  const auto* scale = reinterpret_cast<const unsigned char*>(&weight.tensor_scale);
  bytes.insert(bytes.end(), scale, scale + sizeof(float));
  return bytes;
}

// Each code is that of the nearest value on the grid of the scale that was stored with it.
//
// The encoder rounds x / scale to f32, and for nvfp4 scale * tensor_scale before: together at most
// 2^-23 relative, by which x may lie beyond half-way; it is then 2 * 2^-23 |x| further than the
// nearest.
testing::AssertionResult codes_are_nearest(const Weight& weight, const Array& dense) {
  std::vector<std::vector<double>> values;  // for each zero point
  for (int zero = 0; zero < 16; ++zero)
    values.push_back(reference::code_values(weight.format, zero));
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

// ---- rounding and shapes
// -------------------------------------------------------------------------

TEST(Quantize, EveryCodeIsNearestOnRaggedRows) {
  Context ctx = make_context();
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

TEST(Quantize, OddRowsEndInHalfAByteOfZeroBits) {
  Context ctx = make_context();
  const TestTensor dense(ctx, random_normal({3, 33}, 2), DType::f32);
  for (const QuantizeOptions& options : every_way()) {
    if (info(options.format).bits != 4) continue;
    const PackedWeight packed = quantize(ctx, dense, options);
    const int unused_bits = options.format == Format::nf4 ? 0x0f : 0xf0;
    for (std::int64_t row = 0; row < 3; ++row) {
      EXPECT_EQ(packed.weight.data.ptr<std::uint8_t>()[row * 17 + 16] & unused_bits, 0);
    }
  }
}

TEST(Quantize, AnyLayoutAndDtype) {
  Context ctx = make_context();
  const Array values = random_normal({5, 70}, 3);
  for (const QuantizeOptions& options : every_way()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const TestTensor plain(ctx, values, dtype);
      // The same numbers in f32: quantize() must see nothing else of the dtype.
      const TestTensor as_f32(ctx, plain.read(), DType::f32);
      const PackedWeight expected = quantize(ctx, as_f32, options);
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(text(options) + " " + std::string(name(dtype)) + " " + to_string(layout));
        const TestTensor dense(ctx, values, dtype, layout);
        const PackedWeight packed = quantize(ctx, dense, options);
        EXPECT_EQ(bytes_of(packed.weight), bytes_of(expected.weight));
        EXPECT_TRUE(dense.untouched());
      }
    }
  }
}

TEST(Quantize, SameBitsTwiceAndWithAnyThreads) {
  Context one = make_context(1), three = make_context(3);
  const TestTensor dense(one, random_normal({67, 500}, 4), DType::f32);
  for (const QuantizeOptions& options : every_way()) {
    const std::vector<unsigned char> bytes = bytes_of(quantize(one, dense, options).weight);
    EXPECT_EQ(bytes_of(quantize(one, dense, options).weight), bytes) << text(options);
    EXPECT_EQ(bytes_of(quantize(three, dense, options).weight), bytes) << text(options);
  }
}

// Rows that lie half-way between the values of a grid of scale 1, and whose largest weight makes
// from_max choose that scale.
TEST(Quantize, TiesGoToTheEvenCode) {
  Context ctx = make_context();
  for (const QuantizeOptions& options : every_format(ScaleSearch::from_max)) {
    SCOPED_TRACE(text(options));
    const int zero = options.zero_point ? 5 : 8;  // odd, so that even codes are odd numbers
    const std::vector<double> grid = reference::code_values(options.format, zero);
    std::vector<double> sorted;
    for (const double value : grid) {
      const bool beyond_largest = options.format == Format::int8 && value == -128;
      const bool beyond_seven = options.format == Format::int4 && value == -8;
      if (!std::isnan(value) && !beyond_largest && !beyond_seven) sorted.push_back(value);
    }
    std::sort(sorted.begin(), sorted.end());
    // Each block: the two ends, then as many ties as fit.
    const std::int64_t group = options.group > 0               ? options.group
                               : options.format == Format::fp8 ? 300
                                                               : 256;
    const std::int64_t block = info(options.format).default_group > 0 && options.group < 0
                                   ? info(options.format).default_group
                                   : group;
    std::vector<double> row;
    for (std::size_t tie = 0; tie + 1 < sorted.size();) {
      row.push_back(sorted.front());
      row.push_back(sorted.back());
      for (std::int64_t i = 2; i < block; ++i, ++tie) {
        const bool more = tie + 1 < sorted.size();
        row.push_back(more ? (sorted[tie] + sorted[tie + 1]) / 2 : 0.0);
      }
    }
    Array values({2, static_cast<std::int64_t>(row.size())});
    std::copy(row.begin(), row.end(), values.data.begin());
    values.at(1, 0) = 6 * 448;  // makes nvfp4's tensor scale 1
    const TestTensor dense(ctx, values, DType::f32);
    const PackedWeight packed = quantize(ctx, dense, options);
    for (std::int64_t k = 0; k < values.size(1); ++k) {
      ASSERT_EQ(reference::scale_at(packed.weight, 0, k), 1.0);
      ASSERT_EQ(reference::zero_at(packed.weight, 0, k), zero);
      const double x = dense.read().at(0, k);
      ASSERT_EQ(reference::code_at(packed.weight, 0, k), reference::nearest_code(grid, x)) << x;
    }
  }
}

// from_max, by the formulas that everyone uses. (nvfp4 alone may take the next lower code: it leans
// to the finer grid.)
TEST(Quantize, FromMaxFollowsTheFormulas) {
  Context ctx = make_context();
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

// The bits are a promise: the same on every machine, whatever the compiler makes of the loops. A
// change here is a change of what quantize() gives, and has to be meant.
TEST(Quantize, BitsArePinned) {
  const struct {
    Format format;
    std::int64_t group;
    bool zero_point;
    std::uint64_t hash;
  } rows[] = {
      {Format::nvfp4, -1, false, 0xd0cc50fc4f7e0227},
      {Format::mxfp4, -1, false, 0x0df28b395e13a65c},
      {Format::nf4, -1, false, 0xf579b798a3a53f79},
      {Format::int4, 32, false, 0x70f788ebb107557c},
      {Format::int4, 128, true, 0x53b7b205370ee222},
      {Format::int8, 0, false, 0x7a314f6bad82e33f},
      {Format::int8, 32, false, 0xa16f408bac650680},
      {Format::fp8, -1, false, 0xc7016c5343931a34},
  };
  Context ctx = make_context();
  // Sums of whole numbers, because random_normal() needs a logarithm, and those differ.
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

// ---- round trips
// ---------------------------------------------------------------------------------

// A weight that holds every code of its format in every block, and scales of which the largest
// value gives them back.
PackedWeight every_code(Context& ctx, const QuantizeOptions& options) {
  constexpr std::int64_t kRows = 3, kColumns = 256;
  const TestTensor any(ctx, random_normal({kRows, kColumns}, 5), DType::f32);
  PackedWeight packed = quantize(ctx, any, options);
  Weight& weight = packed.weight;
  for (std::int64_t i = 0; i < weight.data.numel(); ++i) {
    auto& byte = weight.data.ptr<std::uint8_t>()[i];
    if (info(weight.format).bits == 4) {
      const int first = static_cast<int>(2 * i % 16);
      byte = static_cast<std::uint8_t>(first | (first + 1) << 4);
    } else {
      const int code = static_cast<int>(i % 256);
      const bool never = weight.format == Format::fp8 ? (code & 0x7f) == 0x7f : code == 128;
      byte =
          static_cast<std::uint8_t>(never ? 0 : code);  // NaN, and -128, which from_max never takes
    }
  }
  if (weight.format == Format::nvfp4) {
    std::memset(weight.scales.data, 0x7e, static_cast<std::size_t>(weight.scales.bytes()));
    weight.tensor_scale = 0x1p-10f;
  }
  return packed;
}

TEST(Quantize, EveryCodeSurvivesDecodeAndEncode) {
  Context ctx = make_context();
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
      // Of 256 codes only some are in a block of 32: end each with the largest.
      for (std::int64_t i = 31; i < packed.weight.data.numel(); i += 32) {
        packed.weight.data.ptr<std::int8_t>()[i] = 127;
      }
    }
    const TestTensor dense(ctx, reference::dequantize(packed.weight), DType::f32);
    const PackedWeight again = quantize(ctx, dense, options);
    EXPECT_EQ(bytes_of(again.weight), bytes_of(packed.weight));
  }
}

// Powers of two change the scale and nothing else.
TEST(Quantize, PowersOfTwoPassThrough) {
  Context ctx = make_context();
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

// ---- extremes
// --------------------------------------------------------------------------------------

Array decoded(Context& ctx, const Array& values, const QuantizeOptions& options) {
  const TestTensor dense(ctx, values, DType::f32);
  const PackedWeight packed = quantize(ctx, dense, options);
  for (std::int64_t k = 0; k < values.size(1); ++k) {  // normal: a ratio to it is a number
    EXPECT_GE(std::abs(reference::scale_at(packed.weight, 0, k)), double{FLT_MIN});
  }
  const TestTensor out = TestTensor::poisoned(ctx, values.shape, DType::f32);
  dequantize(ctx, packed.weight, out);
  return out.read();
}

TEST(Quantize, ZerosStayZeros) {
  Context ctx = make_context();
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

// The largest and the smallest f32 of both signs, alone and among ordinary numbers. All that is
// decoded is finite, and off by at most a third of the largest weight (mxfp4 cuts 2^128 off at 6 *
// 2^125, a quarter less; no other format comes near that).
TEST(Quantize, HugeAndTinyWeightsStayFinite) {
  Context ctx = make_context();
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
          // Far below FLT_MIN the grid ends: nothing is off by more than FLT_MIN there.
          ASSERT_LE(std::abs(result.data[i] - values.data[i]), largest / 3 + double{FLT_MIN});
        }
      }
    }
  }
}

// ---- sizes
// -----------------------------------------------------------------------------------------

TEST(Quantize, StoresExactlyWhatPackedBytesSays) {
  Context ctx = make_context();
  const std::int64_t out = 5, in = 239;
  const TestTensor dense(ctx, random_normal({out, in}, 8), DType::f32);
  const auto expected = [&](const QuantizeOptions& options) -> std::int64_t {
    switch (options.format) {
      case Format::nvfp4:
        return out * (120 + 15) + 4;
      case Format::mxfp4:
        return out * (120 + 8);
      case Format::nf4:
        return out * (120 + 4 * 4);
      case Format::int4: {
        const std::int64_t groups = options.group == 32 ? 8 : options.group == 64 ? 4 : 2;
        return out * (120 + groups * (options.zero_point ? 3 : 2));
      }
      case Format::int8:
        return out * (239 + 4 * (options.group == 0 ? 1 : options.group == 7 ? 35 : 8));
      default:
        return out * (239 + 4);
    }
  };
  for (const QuantizeOptions& options : every_way()) {
    SCOPED_TRACE(text(options));
    const PackedWeight packed = quantize(ctx, dense, options);
    EXPECT_EQ(packed_bytes(options, out, in), expected(options));
    EXPECT_EQ(packed.weight.bytes(), expected(options));
    // Everything lies in the one buffer, each part on a boundary of its own.
    const auto* base = static_cast<const char*>(packed.storage.data());
    const char* end = base;
    for (const Tensor* part : {&packed.weight.data, &packed.weight.scales, &packed.weight.zeros}) {
      if (!part->defined()) continue;
      EXPECT_TRUE(part->is_contiguous());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part->data) % Buffer::kAlignment, 0u);
      EXPECT_GE(part->ptr<const char>(), end);
      end = part->ptr<const char>() + part->bytes();
    }
    EXPECT_LE(end, base + packed.storage.bytes());
    EXPECT_LT(packed.storage.bytes(), packed.weight.bytes() + 3 * Buffer::kAlignment);
  }
}

TEST(Quantize, SavesWhatItPromises) {
  const std::int64_t n = 4096, weights = n * n, dense = 4 * weights;
  const std::int64_t packed = packed_bytes({.format = Format::nvfp4}, n, n);
  EXPECT_EQ(packed, weights * 9 / 16 + 4);  // 4.5 bits for each weight, and one f32
  const auto saving = [&](std::int64_t bytes) {
    return 1.0 - static_cast<double>(bytes) / static_cast<double>(dense);
  };
  EXPECT_EQ(saving(weights / 2), 0.875);  // the codes alone
  std::printf("  nvfp4 against f32: %.1f%% less by codes alone, %.2f%% less with all scales\n",
              100 * saving(weights / 2), 100 * saving(packed));
  EXPECT_GT(saving(packed), 0.859);
}

// ---- refusals
// --------------------------------------------------------------------------------------

TEST(Quantize, RefusesWhatIsNotFinite) {
  Context ctx = make_context();
  const struct {
    double value;
    std::string text;
  } rows[] = {{NAN, "nan"}, {INFINITY, "inf"}, {-INFINITY, "-inf"}};
  for (const auto& row : rows) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const Layout layout : kLayouts) {
        Array values = random_normal({4, 37}, 9);
        values.at(2, 36) = row.value;
        values.at(3, 0) = row.value;
        const TestTensor dense(ctx, values, dtype, layout);
        EXPECT_TRUE(refuses(
            [&] { quantize(ctx, dense, {}); },
            "quantize: dense[2, 36] is " + row.text + "; only finite weights can be packed"));
      }
    }
  }
  EXPECT_EQ(ctx.trace().calls("quantize"), 0);
}

struct QuantizeArgs {
  Tensor dense;
  QuantizeOptions options;
};

TEST(Quantize, Refusals) {
  Context ctx = make_context();
  const TestTensor dense(ctx, random_normal({4, 64}, 10), DType::f32);
  const Refusal<QuantizeArgs> rows[] = {
      {[](auto& a) { a.dense = Tensor(); }, "quantize: dense was not given"},
      {[](auto& a) { a.dense.data = nullptr; },
       "quantize: dense f32[4, 64] has no data (null pointer)"},
      {[](auto& a) { a.dense.data = a.dense.template ptr<char>() + 1; },
       "quantize: dense f32[4, 64] is not aligned to its 4-byte elements"},
      {[](auto& a) { a.dense.dtype = DType::i32; },
       "quantize: dense is i32; accepted: f32, f16, bf16"},
      {[](auto& a) { a.dense.device = Device::cuda(); },
       "quantize: dense is on cuda:0, but the context runs on cpu"},
      {[](auto& a) { a.dense = a.dense.transpose(0, 1); },
       "quantize: the last dimension of dense must be contiguous, got f32[64, 4] with strides [1, "
       "64]"},
      {[](auto& a) {
         a.dense = a.dense.view({4, 8, 8});
       },
       "quantize: dense must have shape [any, any], got f32[4, 8, 8]"},
      {[](auto& a) { a.dense = a.dense.slice(1, 0, 0); },
       "quantize: a matrix of 4 x 0 weights was given; it needs at least one row and column"},
      {[](auto& a) { a.options.format = Format::dense; },
       "quantize: dense is no packed format; choose one of formats()"},
      {[](auto& a) { a.options.group = 32; },
       "quantize: nvfp4 in groups of 32 was asked for; accepted: 16"},
      {[](auto& a) { a.options = {.format = Format::int4, .group = 16}; },
       "quantize: int4 in groups of 16 was asked for; accepted: 32, 64, 128"},
      {[](auto& a) { a.options = {.format = Format::int8, .group = -5}; },
       "quantize: int8 in groups of -5 was asked for; accepted: 0 (the whole row) or any positive "
       "number"},
      {[](auto& a) { a.options.zero_point = true; },
       "quantize: nvfp4 has no zero point; only int4 has"},
      {[](auto& a) { a.options.format = static_cast<Format>(77); },
       "77 is not the number of a format; the last is 6 (fp8)"},
      {[](auto& a) {
         a.dense.shape[0] = std::int64_t{1} << 40;
         a.dense.strides[0] = std::int64_t{1} << 40;
       },
       "size 1099511627775 x 1099511627776 does not fit into 64 bits", ErrorCode::overflow},
  };
  for (const auto& row : rows) {
    QuantizeArgs args{dense, {}};
    row.spoil(args);
    EXPECT_TRUE(refuses([&] { quantize(ctx, args.dense, args.options); }, row.text, row.code));
  }
  EXPECT_TRUE(dense.untouched());
  EXPECT_EQ(ctx.trace().calls("quantize"), 0);
  EXPECT_TRUE(refuses([] { packed_bytes({}, std::int64_t{1} << 40, std::int64_t{1} << 40); },
                      "size 1099511627776 x 549755813888 does not fit into 64 bits",
                      ErrorCode::overflow));
  EXPECT_TRUE(refuses([] { packed_bytes({}, -1, 16); },
                      "quantize: a matrix of -1 x 16 weights was given; it needs at least one row "
                      "and column"));
}

TEST(Quantize, IsTraced) {
  Context ctx = make_context();
  const TestTensor dense(ctx, random_normal({4, 64}, 11), DType::f16);
  quantize(ctx, dense);
  ASSERT_EQ(ctx.trace().entries().size(), 1u);
  const TraceEntry& entry = ctx.trace().entries()[0];
  EXPECT_EQ(entry.op, "quantize");
  EXPECT_EQ(entry.kernel, "cpu");
  EXPECT_EQ(entry.shapes, "dense f16[4, 64] weight nvfp4[4, 64]");
  EXPECT_EQ(entry.bytes, 4 * 64 * 2 + 4 * (32 + 4) + 4);
}

}  // namespace
}  // namespace tessera::test
