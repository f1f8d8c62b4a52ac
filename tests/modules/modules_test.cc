#include "tessera/modules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/linear.h"
#include "reference/modules.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

using reference::kDensePlan;
using reference::weights_of;

// A block, and everything about the call that can vary.
struct BlockCase {
  std::string name;
  std::int64_t d_model, n_heads, d_ff;
  TransformerBlockOptions options;
  Mask mask = Mask::causal();
};

std::vector<BlockCase> block_cases() {
  return {
      {"neox_parallel", 48, 3, 100, {.parallel_residual = true, .attention = {.rotary_dims = 4}}},
      {"neox_serial", 48, 3, 100, {.mlp = MlpKind::gelu_tanh, .attention = {.rotary_dims = 16}}},
      {"llama",
       64,
       4,
       113,
       {.norm = NormKind::rms_norm,
        .mlp = MlpKind::silu_gated,
        .eps = 1e-6f,
        .attention = {.kv_heads = 2, .rotary_dims = 16, .bias = false}}},
      {"interleaved_no_rope_window",
       40,
       5,
       33,
       {.attention = {.kv_heads = 1, .rotary_dims = 8, .rope_style = RopeStyle::interleaved}},
       Mask::window(3, 0)},
      {"sinks", 32, 2, 64, {}, Mask::sinks(2, 5)},
      {"full", 32, 1, 64, {.parallel_residual = true, .norm = NormKind::rms_norm}, Mask::full()},
  };
}

TransformerBlock make_block(Context& ctx, const BlockCase& c, DType dtype) {
  TransformerBlockOptions options = c.options;
  options.attention.dtype = dtype;
  options.attention.seed = 100;
  return TransformerBlock(ctx, c.d_model, c.n_heads, c.d_ff, options);
}

// The same seed makes the same weights on every device, so the reference reads them from a twin on
// the CPU.
class TransformerBlockTest : public DeviceTest {
 protected:
  Context cpu_{ContextOptions{.threads = 2}};
};

TEST_P(TransformerBlockTest, MatchesFloat64) {
  for (const BlockCase& c : block_cases()) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const auto weights = weights_of(cpu_, make_block(cpu_, c, dtype), kDensePlan);
      const TransformerBlock block = make_block(ctx(), c, dtype);
      for (Layout layout : kLayouts) {
        SCOPED_TRACE(c.name + " " + std::string(name(dtype)) + " " + to_string(layout));
        const TestTensor x(ctx(), random_normal({2, 13, c.d_model}, 7), dtype, layout);
        const TestTensor out = TestTensor::poisoned(ctx(), {2, 13, c.d_model}, dtype, layout);
        ctx().trace().clear();
        block.forward(ctx(), x, out, c.mask);
        // Activations are rounded to dtype about ten times on the way.
        const double bound = dtype == DType::f32 ? 5e-6 : 3 * epsilon(dtype);
        EXPECT_LT(relative_error(out.read(), transformer_block(weights, x.read(), c.mask)), bound);
        EXPECT_TRUE(out.surroundings_intact());
        EXPECT_EQ(ctx().trace().calls("attention"), 1);
        EXPECT_EQ(ctx().trace().calls("linear") + ctx().trace().calls("gated_linear"), 4);
      }
    }
  }
}

TEST_P(TransformerBlockTest, MatchesFloat64OnDecodedWeightsWhenPacked) {
  const PrecisionPlan plan{.rules = {{"mlp.down", Format::dense}, {"attention.*", Format::int8}},
                           .otherwise = Format::nvfp4};
  for (const BlockCase& c : block_cases()) {
    SCOPED_TRACE(c.name);
    const auto weights = weights_of(cpu_, make_block(cpu_, c, DType::f32), plan);
    TransformerBlock block = make_block(ctx(), c, DType::f32);
    const std::int64_t dense_bytes = block.bytes();
    block.quantize(ctx(), plan);
    EXPECT_LT(block.bytes(), dense_bytes);
    EXPECT_EQ(block.down().weight().format, Format::dense);
    EXPECT_EQ(block.up().weight().format, Format::nvfp4);
    EXPECT_EQ(block.attention().qkv().weight().format, Format::int8);

    const TestTensor x(ctx(), random_normal({1, 19, c.d_model}, 8), DType::f32);
    const TestTensor out = TestTensor::poisoned(ctx(), {1, 19, c.d_model}, DType::f32);
    const Array expected = transformer_block(weights, x.read(), c.mask);
    block.forward(ctx(), x, out, c.mask);
    EXPECT_LT(relative_error(out.read(), expected), 5e-6) << "exact activations";

    ctx().set_activations(Activations::int8);
    block.forward(ctx(), x, out, c.mask);
    EXPECT_LT(relative_error(out.read(), expected), 0.02) << "activations of 8 bits";
    ctx().set_activations(Activations::exact);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, TransformerBlockTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST(TransformerBlock, UseFp4PacksInTheConstructor) {
  Context ctx({.threads = 1});
  const TransformerBlock dense(ctx, 64, 4, 128);
  const TransformerBlock packed(ctx, 64, 4, 128, {.use_fp4 = true});
  for (const Linear* layer :
       {&packed.attention().qkv(), &packed.attention().output(), &packed.up(), &packed.down()}) {
    EXPECT_EQ(layer->weight().format, Format::nvfp4);
  }
  EXPECT_FALSE(packed.gate().weight().defined());
  EXPECT_LT(packed.bytes(), dense.bytes() / 5);
}

TEST(TransformerBlock, WorksInPlace) {
  for (const BlockCase& c : block_cases()) {
    SCOPED_TRACE(c.name);
    Context ctx({.threads = 2});
    const TransformerBlock block = make_block(ctx, c, DType::f32);
    const Array values = random_normal({1, 7, c.d_model}, 9);
    const TestTensor x(ctx, values, DType::f32);
    const TestTensor out = TestTensor::poisoned(ctx, {1, 7, c.d_model}, DType::f32);
    block.forward(ctx, x, out, c.mask);
    const TestTensor both(ctx, values, DType::f32);
    block.forward(ctx, both, both, c.mask);
    EXPECT_TRUE(identical(both.read(), out.read()));
  }
}

TEST(TransformerBlock, DoesNotAllocateOnceWarm) {
  Context ctx({.threads = 2});
  const TransformerBlock block(ctx, 64, 4, 128, {.use_fp4 = true});
  const TestTensor x(ctx, random_normal({1, 33, 64}, 10), DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx, {1, 33, 64}, DType::f32);
  block.forward(ctx, x, out);
  block.forward(ctx, x, out);
  const std::int64_t held = ctx.workspace_bytes();
  const Array first = out.read();
  for (int i = 0; i < 3; ++i) block.forward(ctx, x, out);
  EXPECT_EQ(ctx.workspace_bytes(), held);
  EXPECT_TRUE(identical(out.read(), first));
}

TEST(FusedFP4Linear, IsTheDenseLayerOnDecodedWeights) {
  Context ctx({.threads = 2, .trace = true});
  Linear dense(ctx, 100, 37, Activation::gelu, /*bias=*/true, DType::f32, 11);
  const TestTensor weight(ctx, random_normal({37, 100}, 12), DType::f16, Layout::sliced);
  const TestTensor bias(ctx, random_normal({37}, 13), DType::f32);
  dense.load(ctx, weight, bias);
  EXPECT_TRUE(identical(reference::to_array(dense.weight().data), weight.read()));

  const auto decoded = weights_of(ctx, dense, Format::nvfp4);
  const std::int64_t dense_bytes = dense.bytes();
  const FusedFP4Linear packed = quantize(ctx, std::move(dense));
  // Each weight takes 4.5 bits instead of 32, but rows are padded to the tile.
  EXPECT_LT(packed.bytes(), dense_bytes / 4);

  const TestTensor x(ctx, random_normal({3, 100}, 14), DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx, {3, 37}, DType::f32);
  packed.forward(ctx, x, out);
  EXPECT_TRUE(close(out.read(),
                    reference::linear(x.read(), decoded.weight, decoded.bias, Activation::gelu),
                    1e-5, 1e-5));

  FusedFP4Linear loaded(ctx, 100, 37, Activation::gelu);
  loaded.load(ctx, weight, bias);
  const TestTensor again = TestTensor::poisoned(ctx, {3, 37}, DType::f32);
  loaded.forward(ctx, x, again);
  EXPECT_TRUE(identical(again.read(), out.read()));
}

TEST(FlashAttention, MatchesFloat64WithResidual) {
  Context ctx({.threads = 2});
  const FlashAttentionOptions options{.kv_heads = 2, .rotary_dims = 6, .bias = true, .seed = 15};
  const FlashAttention module(ctx, 48, 6, options);
  const TestTensor x(ctx, random_normal({3, 11, 48}, 16), DType::f32, Layout::permuted);
  const TestTensor residual(ctx, random_normal({3, 11, 48}, 17), DType::f32, Layout::sliced);
  const TestTensor out = TestTensor::poisoned(ctx, {3, 11, 48}, DType::f32);
  module.forward(ctx, x, out, Mask::causal(), residual);
  Array expected =
      flash_attention(weights_of(ctx, module, options, kDensePlan), x.read(), Mask::causal());
  const Array added = residual.read();
  for (std::size_t i = 0; i < expected.data.size(); ++i) expected.data[i] += added.data[i];
  EXPECT_LT(relative_error(out.read(), expected), 2e-6);
}

TEST(PrecisionPlan, TheFirstMatchingRuleDecides) {
  const PrecisionPlan plan{
      .rules = {{"mlp.down", Format::dense}, {"mlp.*", Format::mxfp4}, {"mlp.up", Format::int8}},
      .otherwise = Format::int4};
  EXPECT_EQ(plan.format_of("mlp.down"), Format::dense);
  EXPECT_EQ(plan.format_of("mlp.up"), Format::mxfp4);
  EXPECT_EQ(plan.format_of("attention.qkv"), Format::int4);
  EXPECT_EQ(PrecisionPlan{}.format_of("anything"), Format::nvfp4);
}

TEST(Modules, RefuseWithAReason) {
  Context ctx({.threads = 1});
  EXPECT_TRUE(refuses([&] { Linear(ctx, 0, 4); },
                      "a linear layer needs at least one input and one output, got 0 -> 4"));
  EXPECT_TRUE(refuses([&] { Linear(ctx, 4, 4, Activation::none, true, DType::i8); },
                      "a layer's dtype is f32, f16 or bf16, got i8"));
  EXPECT_TRUE(refuses([&] { FlashAttention(ctx, 10, 3); },
                      "3 heads do not divide a model dimension of 10"));
  EXPECT_TRUE(refuses([&] { FlashAttention(ctx, 12, 3, {.kv_heads = 2}); },
                      "2 key/value heads do not divide 3 query heads"));
  EXPECT_TRUE(
      refuses([&] { FlashAttention(ctx, 12, 3, {.rotary_dims = 3}); },
              "3 rotary dimensions: an even number up to the head dimension, 4, is accepted"));
  EXPECT_TRUE(refuses([&] { TransformerBlock(ctx, 12, 3, 8, {.mlp = MlpKind::silu_gated}); },
                      "a gated MLP has no bias: set attention.bias to false for the block"));

  Linear layer(ctx, 32, 4);
  layer.quantize(ctx, {.format = Format::mxfp4});
  EXPECT_TRUE(refuses([&] { layer.quantize(ctx); }, "this layer is packed as mxfp4 already"));
  const TestTensor weight(ctx, random_normal({4, 32}, 1), DType::f32);
  EXPECT_TRUE(refuses([&] { layer.load(ctx, weight); },
                      "this layer is packed as mxfp4: load the weights first, then quantize it"));
  Linear small(ctx, 32, 4, Activation::none, /*bias=*/false);
  EXPECT_TRUE(
      refuses([&] { small.load(ctx, weight, TestTensor(ctx, random_normal({4}, 1), DType::f32)); },
              "bias f32[4] was given to a layer without one"));

  const TransformerBlock block(ctx, 16, 2, 8);
  const TestTensor x(ctx, random_normal({1, 3, 12}, 2), DType::f32);
  const TestTensor half(ctx, random_normal({1, 3, 16}, 2), DType::f16);
  const TestTensor out = TestTensor::poisoned(ctx, {1, 3, 16}, DType::f32);
  EXPECT_TRUE(refuses([&] { block.forward(ctx, x, out); },
                      "TransformerBlock: x must be f32[batch, seq, 16], got f32[1, 3, 12]"));
  EXPECT_TRUE(refuses([&] { block.forward(ctx, half, out); },
                      "TransformerBlock: x must be f32[batch, seq, 16], got f16[1, 3, 16]"));
  EXPECT_TRUE(out.untouched());
}

}  // namespace
}  // namespace tessera::test
