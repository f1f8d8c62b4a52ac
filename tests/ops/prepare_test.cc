#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/linear/weight_tiles.h"
#include "reference/quant.h"
#include "support/linear_case.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kOut = 37, kIn = 113;  // three tiles, four blocks of 32

std::unique_ptr<Context> prepare_context() {
  return std::make_unique<Context>(ContextOptions{.threads = 2, .trace = true});
}

// The code of a weight in tiles, read as in the drawing of cpu/linear/weight_tiles.h.
int tiled_code(const Weight& weight, std::int64_t row, std::int64_t k) {
  const auto* tile = weight.data.ptr<const std::uint8_t>() + row / 16 * weight.data.strides[0];
  const std::int64_t lane = row % 16 * 4 + k % 4;
  if (weight.format == Format::int8) return tile[k / 4 * 64 + lane];
  const int pair = tile[k / 8 * 64 + lane];
  return k % 8 < 4 ? pair & 15 : pair >> 4;
}

// Byte b of the scale or zero point of a row's block.
int tiled_byte(const Tensor& tensor, std::int64_t row, std::int64_t block, std::int64_t b) {
  const std::int64_t at = row / 16 * tensor.strides[0] + block * 16 + row % 16;
  return tensor.ptr<const std::uint8_t>()[at * size_of(tensor.dtype) + b];
}

int published_byte(const Tensor& tensor, std::int64_t row, std::int64_t block, std::int64_t b) {
  const std::int64_t at = row * tensor.strides[0] + block;
  return tensor.ptr<const std::uint8_t>()[at * size_of(tensor.dtype) + b];
}

// Scales and zero points: the same bytes, sixteen rows side by side, and zeros in the padding.
void expect_interleaved(const Tensor& published, const Tensor& tiled) {
  ASSERT_EQ(tiled.dtype, published.dtype);
  for (std::int64_t row = 0; row < tiled.shape[0] * 16; ++row) {
    for (std::int64_t block = 0; block < tiled.shape[1] / 16; ++block) {
      const bool padding = row >= published.shape[0] || block >= published.shape[1];
      for (std::int64_t b = 0; b < size_of(tiled.dtype); ++b) {
        EXPECT_EQ(tiled_byte(tiled, row, block, b),
                  padding ? 0 : published_byte(published, row, block, b));
      }
    }
  }
}

std::vector<WeightCase> formats_with_tiles() {
  return {{.packed = {{.format = Format::nvfp4}}},
          {.packed = {{.format = Format::mxfp4}}},
          {.packed = {{.format = Format::nf4}}},
          {.packed = {{.format = Format::int4, .group = 32}}},
          {.packed = {{.format = Format::int4, .group = 128, .zero_point = true}}},
          {.packed = {{.format = Format::int4, .group = 0}}, .scales = DType::f32},
          {.packed = {{.format = Format::int8}}},
          {.packed = {{.format = Format::int8, .group = 96}}},
          {.packed = {{.format = Format::int8, .group = 64}},
           .scales = DType::bf16,
           .int8_zeros = true}};
}

TEST(Prepare, TilesHoldEveryCodeAndScale) {
  const auto ctx = prepare_context();
  for (const WeightCase& how : formats_with_tiles()) {
    for (Layout layout : kLayouts) {
      SCOPED_TRACE(how.text());
      const TestWeight published(*ctx, how, kOut, kIn, layout);
      const PackedWeight prepared = prepare(*ctx, published.weight());
      const Weight& tiled = prepared.weight;
      ASSERT_EQ(tiled.layout, WeightLayout::cpu_tiles);
      EXPECT_EQ(tiled.format, how.packed->format);
      EXPECT_EQ(tiled.group, published.weight().group);
      EXPECT_EQ(tiled.tensor_scale, published.weight().tensor_scale);
      for (std::int64_t row = 0; row < 48; ++row) {
        for (std::int64_t k = 0; k < 128; ++k) {
          const bool padding = row >= kOut || k >= kIn;
          EXPECT_EQ(tiled_code(tiled, row, k),
                    padding ? 0 : reference::code_at(published.weight(), row, k));
        }
      }
      expect_interleaved(published.weight().scales, tiled.scales);
      const bool zeros = how.packed->zero_point || how.int8_zeros;
      ASSERT_EQ(tiled.zeros.defined(), zeros);
      if (zeros) expect_interleaved(published.weight().zeros, tiled.zeros);
      EXPECT_TRUE(published.untouched());
    }
  }
  EXPECT_EQ(ctx->trace().calls("prepare", "cpu.tiles"), ctx->trace().calls("prepare"));
}

// Nothing is padded if the sizes are whole tiles and blocks.
TEST(Prepare, TakesNoMoreMemory) {
  const auto ctx = prepare_context();
  for (const WeightCase& how : formats_with_tiles()) {
    if (how.packed->group == 96) continue;
    const TestWeight published(*ctx, how, 64, 256);
    const PackedWeight prepared = prepare(*ctx, published.weight());
    EXPECT_EQ(prepared.weight.bytes(), published.weight().bytes());
    EXPECT_LE(prepared.storage.bytes(), published.weight().bytes() + 3 * Buffer::kAlignment);
  }
}

// The result is a copy in its own memory.
TEST(Prepare, LeavesOtherWeightsAsTheyAre) {
  const auto ctx = prepare_context();
  const std::vector<WeightCase> weights = {{.dtype = DType::f32},
                                           {.dtype = DType::bf16},
                                           {.packed = {{.format = Format::fp8}}},
                                           {.packed = {{.format = Format::int8, .group = 7}}}};
  for (const WeightCase& how : weights) {
    for (Layout layout : kLayouts) {
      SCOPED_TRACE(how.text());
      const TestWeight original(*ctx, how, kOut, kIn, layout);
      const PackedWeight prepared = prepare(*ctx, original.weight());
      EXPECT_EQ(prepared.weight.layout, WeightLayout::published);
      EXPECT_EQ(prepared.weight.format, original.weight().format);
      EXPECT_EQ(prepared.weight.group, original.weight().group);
      const Tensor pairs[][2] = {{original.weight().data, prepared.weight.data},
                                 {original.weight().scales, prepared.weight.scales}};
      for (const auto& [from, to] : pairs) {
        ASSERT_EQ(from.defined(), to.defined());
        if (!from.defined()) continue;
        ASSERT_EQ(to.shape, from.shape);
        EXPECT_TRUE(to.is_contiguous());
        EXPECT_NE(to.data, from.data);
        for (std::int64_t row = 0; row < kOut; ++row) {
          EXPECT_EQ(std::memcmp(to.ptr<char>() + row * to.strides[0] * size_of(to.dtype),
                                from.ptr<char>() + row * from.strides[0] * size_of(from.dtype),
                                static_cast<std::size_t>(to.shape[1] * size_of(to.dtype))),
                    0);
        }
      }
    }
  }
  EXPECT_EQ(ctx->trace().calls("prepare", "cpu.copy"), ctx->trace().calls("prepare"));
}

TEST(Prepare, IsTraced) {
  const auto ctx = prepare_context();
  const TestWeight published(*ctx, {.packed = {{.format = Format::nvfp4}}}, 32, 64);
  ctx->trace().clear();
  prepare(*ctx, published.weight());
  const TraceEntry& entry = ctx->trace().entries()[0];
  EXPECT_EQ(entry.shapes, "weight nvfp4[32, 64]");
  EXPECT_EQ(entry.bytes, 2 * published.weight().bytes());  // read and written
  EXPECT_EQ(entry.flops, 0);
}

TEST(Prepare, Refuses) {
  const auto ctx = prepare_context();
  const TestWeight nvfp4(*ctx, {.packed = {{.format = Format::nvfp4}}}, kOut, kIn);
  const TestWeight int8(*ctx, {.packed = {{.format = Format::int8}}}, kOut, kIn);
  const std::vector<Refusal<Weight>> refusals = {
      {[](Weight& w) { w = {}; }, "prepare: weight was not given"},
      {[](Weight& w) { w.layout = WeightLayout::cpu_tiles; },
       "prepare: weight is in the layout cpu_tiles; give it in the published layout"},
      {[](Weight& w) { w.data.device = Device::cuda(7); },
       "prepare: weight.data is on cuda:7, but the context runs on cpu"},
      {[](Weight& w) { w.data.data = nullptr; },
       "prepare: weight.data u8[37, 57] has no data (null pointer)"},
      {[](Weight& w) { w.scales = {}; }, "prepare: weight.scales was not given"},
      {[](Weight& w) { w.group = 32; }, "prepare: weight is nvfp4 in groups of 32; accepted: 16"},
      {[](Weight& w) { w.in_features = std::numeric_limits<std::int64_t>::max(); },
       "size 9223372036854775807 x 4 does not fit into 64 bits", ErrorCode::overflow},
      {[&](Weight& w) {
         w = int8.weight();
         static const float bad[kOut] = {1.f, 2.f, INFINITY};
         w.scales.data = const_cast<float*>(bad);
       },
       "prepare: weight.scales[2, 0] is inf; a scale must be finite"},
  };
  for (const Refusal<Weight>& refusal : refusals) {
    Weight weight = nvfp4.weight();
    refusal.spoil(weight);
    EXPECT_TRUE(refuses([&] { prepare(*ctx, weight); }, refusal.text, refusal.code));
  }
  EXPECT_EQ(ctx->trace().calls("prepare"), 0);
}

}  // namespace
}  // namespace tessera::test
