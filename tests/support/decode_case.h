// Calls of decode_layers() for tests: layers of random weights, and a token after some keys.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "reference/test_tensor.h"
#include "tessera/decode_layers.h"
#include "tessera/quant.h"

namespace tessera::test {

// One block of an emulated GPU has room for these sizes.
struct DecodeCase {
  std::int64_t hidden = 256, heads = 4, inner = 512, layers = 2;
  std::optional<Format> format{};      // not given: dense
  std::int64_t keys = 70, width = 40;  // with the token's; pages of the table
  std::int64_t page = 16;
  bool ends = false;  // with embedding, of a drawn id, and final norm
};

class DecodeCall {
 public:
  DecodeCall(Context& ctx, const DecodeCase& c)
      : ctx_(ctx),
        c_(c),
        x_(ctx, random_normal({1, c.hidden}, 1), DType::f16),
        positions_(ctx, Array({1}, static_cast<double>(c.keys - 1)), DType::i64),
        slots_(ctx, Array({1}, static_cast<double>(c.keys - 1)), DType::i32),
        table_(ctx, counted(c.width), DType::i32),
        lengths_(ctx, Array({1}, static_cast<double>(c.keys)), DType::i32),
        keys_(ctx, random_normal({c.layers, c.width, c.page, c.heads, dim()}, 2), DType::f16),
        values_(ctx, random_normal({c.layers, c.width, c.page, c.heads, dim()}, 3), DType::f16),
        inv_freq_(ctx, random_normal({dim() / 4}, 4, 0.1), DType::f32),
        embedding_(ctx, random_normal({8, c.hidden}, 5), DType::f16),
        ids_(ctx, Array({1}, -2), DType::i32),  // stands for drawn_[1]
        drawn_(ctx, Array({3}, 5), DType::i32) {
    for (std::int64_t l = 0; l < c.layers; ++l) {
      DecodeLayer layer;
      layer.norm1 = {vector(c.hidden), vector(c.hidden)};
      layer.norm2 = {vector(c.hidden), vector(c.hidden)};
      layer.qkv = product(3 * c.hidden, c.hidden);
      layer.up = product(c.inner, c.hidden);
      layer.down = product(c.hidden, c.inner);
      layer.output = product(c.hidden, c.hidden);
      layers_.push_back(layer);
    }
    ctx.synchronize();  // the weights are constant from now on
    args = {.layers = layers_,
            .x = x_,
            .eps = 1e-5F,
            .activation = Activation::gelu,
            .heads = c.heads,
            .kv_heads = c.heads,
            .dim = dim(),
            .rope = {.inv_freq = inv_freq_},
            .positions = positions_,
            .slots = slots_,
            .keys = pages_of(keys_),
            .values = pages_of(values_),
            .pages = {.table = table_, .lengths = lengths_},
            .mask = Mask::causal()};
    if (!c.ends) return;
    args.embedding = {.ids = ids_, .table = Weight::dense(embedding_), .drawn = drawn_};
    args.final_norm = {vector(c.hidden), vector(c.hidden)};
    ctx.synchronize();
  }

  // Waits, and sets x to its first value.
  void restore_x() { x_.restore(); }
  Array read_x() const { return x_.read(); }
  // The inputs of the kernel besides x and the weights.
  std::vector<Tensor> small_inputs() const {
    if (c_.ends) return {positions_, slots_, table_, lengths_, ids_, drawn_};
    return {positions_, slots_, table_, lengths_};
  }

  DecodeLayersArgs args{};

 private:
  std::int64_t dim() const { return c_.hidden / c_.heads; }
  static Array counted(std::int64_t count) {
    Array result({1, count});
    for (std::int64_t i = 0; i < count; ++i) result.at(0, i) = static_cast<double>(i);
    return result;
  }
  static LayerPages pages_of(const TestTensor& all) {
    return {.first = all.view().select(0, 0), .stride = all.view().strides[0]};
  }
  Tensor vector(std::int64_t size) {
    return tensors_.emplace_back(ctx_, random_normal({size}, seed_++, 0.5), DType::f16);
  }
  DecodeLayer::Product product(std::int64_t out, std::int64_t in) {
    const TestTensor& dense =
        tensors_.emplace_back(ctx_, random_normal({out, in}, seed_++, 0.05), DType::f16);
    Weight weight = Weight::dense(dense);
    weight.constant = true;
    if (c_.format) {
      packed_.push_back(prepare(ctx_, quantize(ctx_, dense, {.format = *c_.format}).weight));
      weight = packed_.back().weight;
    }
    return {.weight = weight, .bias = vector(out)};
  }

  Context& ctx_;
  DecodeCase c_;
  TestTensor x_, positions_, slots_, table_, lengths_, keys_, values_, inv_freq_;
  TestTensor embedding_, ids_, drawn_;
  std::deque<TestTensor> tensors_;
  std::vector<PackedWeight> packed_;
  std::vector<DecodeLayer> layers_;
  std::uint64_t seed_ = 10;
};

}  // namespace tessera::test
