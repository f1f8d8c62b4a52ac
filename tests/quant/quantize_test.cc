#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "quant/cases.h"
#include "reference/test_tensor.h"
#include "support/refusal.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

Context make_context(int threads = 2) { return Context({.threads = threads, .trace = true}); }

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
      // The same numbers in f32. Apart from its rounding, the dtype must not matter to quantize().
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

TEST(Quantize, StoresExactlyWhatPackedBytesSays) {
  Context ctx = make_context();
  const std::int64_t out = 5, in = 239;
  const TestTensor dense(ctx, random_normal({out, in}, 8), DType::f32);
  const auto blocks = [](std::int64_t group) { return group == 0 ? 1 : (239 + group - 1) / group; };
  const auto expected = [&](const QuantizeOptions& options) -> std::int64_t {
    switch (options.format) {
      case Format::nvfp4:
        return out * (120 + 15) + 4;
      case Format::mxfp4:
        return out * (120 + 8);
      case Format::nf4:
        return out * (120 + 4 * 4);
      case Format::int4:
        return out * (120 + blocks(options.group) * (options.zero_point ? 3 : 2));
      case Format::int8:
        return out * (239 + 4 * blocks(options.group));
      default:
        return out * (239 + 4);
    }
  };
  for (const QuantizeOptions& options : every_way()) {
    SCOPED_TRACE(text(options));
    const PackedWeight packed = quantize(ctx, dense, options);
    EXPECT_EQ(packed_bytes(options, out, in), expected(options));
    EXPECT_EQ(packed.weight.bytes(), expected(options));
    // One buffer holds everything. Each part begins at an aligned address.
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
       "quantize: dense is not a packed format; choose one of formats()"},
      {[](auto& a) { a.options.group = 32; },
       "quantize: nvfp4 in groups of 32 was asked for; accepted: 16"},
      {[](auto& a) { a.options = {.format = Format::int4, .group = 24}; },
       "quantize: int4 in groups of 24 was asked for; accepted: 0 (the whole row) or a multiple of "
       "16"},
      {[](auto& a) { a.options = {.format = Format::int8, .group = -5}; },
       "quantize: int8 in groups of -5 was asked for; accepted: 0 (the whole row) or any positive "
       "number"},
      {[](auto& a) { a.options.zero_point = true; },
       "quantize: zero points were asked for with nvfp4; they are made only for int4"},
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
