// decode_layers() beside the float64 twins of the ops that it stands for: weights, norms and biases
// that all differ, both kinds of layers, every way to group heads, rotate keys and hide them. Whole
// models beside ops one by one: tests/model/architectures/decode_layers_test.cc.
#include "tessera/decode_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "support/devices.h"
#include "support/layers_call.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

class DecodeLayersOpTest : public DeviceTest {
 protected:
  void check(const LayersCase& c) {
    SCOPED_TRACE(std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " x " +
                 std::to_string(c.dim) + ", hidden " + std::to_string(c.hidden) + ", inner " +
                 std::to_string(c.inner) + ", keys " + std::to_string(c.keys) + ", pages of " +
                 std::to_string(c.page) + " " + c.mask.to_string() + " " +
                 std::string(c.format == Format::dense ? "dense" : name(c.format)) +
                 (c.kind == DecodeLayerKind::serial ? ", serial" : ", parallel"));
    LayersCall call(ctx(), c);
    const LayersCall::Expected expected = call.expected();
    EXPECT_TRUE(has_decode_layers_kernel(ctx(), call.args));
    ASSERT_TRUE(decode_layers(ctx(), call.args));
    EXPECT_TRUE(is_near(call.x.read(), expected.x));
    EXPECT_TRUE(is_near(call.keys.read(), expected.keys));
    EXPECT_TRUE(is_near(call.values.read(), expected.values));
    EXPECT_TRUE(call.x.surroundings_intact() && call.keys.surroundings_intact() &&
                call.values.surroundings_intact());
  }
  // Nothing is done.
  void expect_no_kernel(const LayersCall& call, const DecodeLayersArgs& args) {
    EXPECT_FALSE(has_decode_layers_kernel(ctx(), args));
    EXPECT_FALSE(decode_layers(ctx(), args));
    EXPECT_TRUE(call.x.untouched() && call.keys.untouched() && call.values.untouched());
  }
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && GetParam().is_cpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DecodeLayersOpTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(DecodeLayersOpTest, SerialLayers) {
  for (const Format format : {Format::dense, Format::nvfp4}) {
    check({.format = format});
    check({.format = format, .keys = 1, .biases = true});
    check({.format = format, .hidden = 512, .layers = 1, .keys = 300});
  }
}

TEST_P(DecodeLayersOpTest, HeadsInGroups) {
  const Format nvfp4 = Format::nvfp4;
  check({.format = nvfp4, .heads = 4, .kv_heads = 4, .dim = 32, .layers = 1});
  check({.format = nvfp4, .heads = 5, .kv_heads = 1, .dim = 128, .layers = 1});
  check({.format = nvfp4, .heads = 6, .kv_heads = 2, .dim = 64, .layers = 1, .keys = 130});
  check({.format = nvfp4, .heads = 8, .kv_heads = 4, .dim = 80, .layers = 1});
  check({.heads = 8, .kv_heads = 1, .dim = 32, .layers = 1, .keys = 17});
}

TEST_P(DecodeLayersOpTest, PagesMasksAndStyles) {
  check({.layers = 1, .keys = 33, .page = 32, .style = RopeStyle::interleaved});
  check({.layers = 1, .keys = 16, .page = 16, .dims = 16});
  check({.layers = 1, .keys = 130, .page = 64, .mask = Mask::window(20, 0)});
  check({.layers = 1, .keys = 60, .hole_begin = 5, .hole_size = 21, .mask = Mask::window(40, 0)});
  check({.layers = 1, .activation = Activation::gelu_tanh, .biases = true});
}

TEST_P(DecodeLayersOpTest, ParallelLayers) {
  for (const Format format : {Format::dense, Format::nvfp4}) {
    check({.kind = DecodeLayerKind::parallel,
           .format = format,
           .kv_heads = 4,
           .dims = 16,
           .activation = Activation::gelu,
           .biases = true});
  }
  check({.kind = DecodeLayerKind::parallel,
         .kv_heads = 4,
         .layers = 1,
         .style = RopeStyle::interleaved,
         .mask = Mask::window(9, 0)});
}

constexpr DecodeLayerKind kKinds[] = {DecodeLayerKind::parallel, DecodeLayerKind::serial};

LayersCase small_case(DecodeLayerKind kind) {
  return {.kind = kind,
          .kv_heads = kind == DecodeLayerKind::parallel ? 4 : 2,
          .layers = 1,
          .keys = 9,
          .biases = true};
}

// First, odd and last rows, ids of both types, and ids that were drawn on the device.
TEST_P(DecodeLayersOpTest, StartsFromTheEmbedding) {
  constexpr std::int64_t kLast = LayersCase::kVocab - 1;
  for (const DecodeLayerKind kind : kKinds) {
    for (const auto& [id, dtype] : {std::pair{std::int64_t{0}, DType::i64},
                                    {17, DType::i32},
                                    {kLast, DType::i64},
                                    {-1, DType::i32},
                                    {-3, DType::i64}}) {
      SCOPED_TRACE(id);
      LayersCase c = small_case(kind);
      c.id = id;
      c.ids = dtype;
      if (id == 17) c.table_layout = Layout::spaced;
      check(c);
    }
  }
}

// As embedding() does: the token is not read, and NaN shows it.
TEST_P(DecodeLayersOpTest, AnIdOutOfRangeGivesNan) {
  for (const DecodeLayerKind kind : kKinds) {
    for (const std::int64_t id : {LayersCase::kVocab, std::int64_t{-4}, std::int64_t{1} << 31}) {
      SCOPED_TRACE(id);
      LayersCase c = small_case(kind);
      c.id = id;
      c.ids = DType::i64;
      LayersCall call(ctx(), c);
      ASSERT_TRUE(decode_layers(ctx(), call.args));
      const Array x = call.x.read();
      EXPECT_TRUE(
          std::all_of(x.data.begin(), x.data.end(), [](double v) { return std::isnan(v); }));
    }
  }
}

TEST_P(DecodeLayersOpTest, EndsWithTheFinalNorm) {
  for (const DecodeLayerKind kind : kKinds) {
    for (const Format format : {Format::dense, Format::nvfp4}) {
      LayersCase c = small_case(kind);
      c.format = format;
      c.final_norm = true;
      check(c);
      c.id = 35;
      c.layers = 2;
      check(c);
    }
  }
  if (is_emulated(GetParam())) return;  // its one block has no room for as many rows
  // A thread of a serial layer has two vectors.
  // A thread of a serial layer has two vectors.
  check({.hidden = 3328, .layers = 1, .keys = 3, .id = 3, .final_norm = true});
}

// The call is refused as a whole.
TEST_P(DecodeLayersOpTest, TablesAndFinalNormsThatHaveNoKernel) {
  LayersCase c = small_case(DecodeLayerKind::serial);
  c.id = 3;
  c.final_norm = true;
  LayersCall call(ctx(), c);
  const auto without = [&](const std::function<void(DecodeLayersArgs&)>& change) {
    DecodeLayersArgs args = call.args;
    change(args);
    expect_no_kernel(call, args);
  };
  const auto table_of = [&](DType dtype, Layout layout) {
    return TestTensor(ctx(), random_normal({LayersCase::kVocab, c.hidden}, 5), dtype, layout);
  };
  const TestTensor floats = table_of(DType::f32, Layout::contiguous);
  const TestTensor odd_rows = table_of(DType::f16, Layout::sliced);
  const PackedWeight packed = quantize(ctx(), call.embedding, {.format = Format::nvfp4});
  const TestTensor float_norm(ctx(), random_normal({c.hidden}, 1), DType::f32);
  const TestTensor short_norm(ctx(), random_normal({c.hidden - 8}, 1), DType::f16);
  without([&](DecodeLayersArgs& args) { args.embedding.table = Weight::dense(floats); });
  without([&](DecodeLayersArgs& args) { args.embedding.table = Weight::dense(odd_rows); });
  without([&](DecodeLayersArgs& args) { args.embedding.table = packed.weight; });
  without([&](DecodeLayersArgs& args) { args.final_norm.weight = float_norm; });
  without([&](DecodeLayersArgs& args) { args.final_norm.weight = short_norm; });
  without([&](DecodeLayersArgs& args) { args.final_norm.bias = args.final_norm.weight; });
}

TEST_P(DecodeLayersOpTest, RefusesAnEmbeddingThatDoesNotFit) {
  LayersCase c = small_case(DecodeLayerKind::parallel);
  c.id = 3;
  c.final_norm = true;
  LayersCall call(ctx(), c);
  const TestTensor narrow(ctx(), random_normal({4, c.hidden / 2}, 1), DType::f16);
  const TestTensor two_ids(ctx(), Array({2}, 1), DType::i32);
  const TestTensor floats(ctx(), Array({1}, 1), DType::f32);
  const auto refuses = [&](const std::function<void(DecodeLayersArgs&)>& change) {
    DecodeLayersArgs args = call.args;
    change(args);
    EXPECT_THROW(decode_layers(ctx(), args), Error);
    EXPECT_THROW(has_decode_layers_kernel(ctx(), args), Error);
  };
  refuses([&](DecodeLayersArgs& args) { args.embedding.table = Weight::dense(narrow); });
  refuses([&](DecodeLayersArgs& args) { args.embedding.table = Weight(); });
  refuses([&](DecodeLayersArgs& args) { args.embedding.ids = two_ids; });
  refuses([&](DecodeLayersArgs& args) { args.embedding.ids = floats; });
  refuses([&](DecodeLayersArgs& args) { args.embedding.drawn = floats; });
  refuses([&](DecodeLayersArgs& args) { args.final_norm.weight = Tensor(); });
  EXPECT_TRUE(call.x.untouched());
}

TEST_P(DecodeLayersOpTest, RefusesWhatDoesNotFit) {
  LayersCall call(ctx(), {.layers = 1});
  DecodeLayersArgs args = call.args;
  args.kv_heads = 3;
  EXPECT_THROW(decode_layers(ctx(), args), Error);
  args = call.args;
  args.kind = DecodeLayerKind::parallel;  // it has no qkv
  EXPECT_THROW(decode_layers(ctx(), args), Error);
}

// A norm with a bias, other kinds of weights, and heads that are too large.
TEST_P(DecodeLayersOpTest, SaysWhereThereIsNoKernel) {
  const LayersCase c{.layers = 1};
  LayersCall call(ctx(), c);
  DecodeLayer changed = call.args.layers.front();
  changed.norm2.bias = changed.norm2.weight;
  DecodeLayersArgs args = call.args;
  args.layers = std::span(&changed, 1);
  EXPECT_FALSE(decode_layers(ctx(), args));
  changed = call.args.layers.front();
  changed.k.weight.constant = false;
  EXPECT_FALSE(decode_layers(ctx(), args));
  LayersCall ints(ctx(), {.format = Format::int8, .layers = 1});
  EXPECT_FALSE(decode_layers(ctx(), ints.args));
  LayersCall large(ctx(), {.heads = 1, .kv_heads = 1, .dim = 256, .layers = 1});
  EXPECT_FALSE(decode_layers(ctx(), large.args));
  EXPECT_TRUE(call.x.untouched() && call.keys.untouched() && call.values.untouched());
}

}  // namespace
}  // namespace tessera::test
