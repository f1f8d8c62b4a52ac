// Calls of decode_layers() for tests, and what the float64 twins of the ops make of them: weights,
// norms and biases that all differ, both kinds of layers, with and without embedding and final
// norm.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reference/attention.h"
#include "reference/embedding.h"
#include "reference/kv_append.h"
#include "reference/linear.h"
#include "reference/norm.h"
#include "reference/rotary.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "tessera/decode_layers.h"
#include "tessera/quant.h"

namespace tessera::test {

inline constexpr double kDecodeEps = 1e-5;

struct LayersCase {
  DecodeLayerKind kind = DecodeLayerKind::serial;
  Format format = Format::dense;
  std::int64_t hidden = 256, heads = 4, kv_heads = 2, dim = 64, inner = 256, layers = 2;
  std::int64_t keys = 37;                                           // with the token's own
  std::int64_t page = 16, dims = 0, hole_begin = 0, hole_size = 0;  // dims: 0 for all
  RopeStyle style = RopeStyle::half_split;
  Mask mask = Mask::causal();
  Activation activation = Activation::silu;
  bool biases = false;
  // The id from which x starts; not given: x holds its row.
  std::optional<std::int64_t> id{};
  DType ids = DType::i32;
  Layout table_layout = Layout::contiguous;
  bool final_norm = false;

  static constexpr std::int64_t kVocab = 37;
  std::int64_t pages() const { return (keys + hole_size + page - 1) / page; }
};

// A product's weight on the device, and what its numbers are.
class TestProduct {
 public:
  TestProduct(Context& ctx, const LayersCase& c, std::int64_t out, std::int64_t in,
              std::uint64_t seed)
      : dense_(ctx, random_normal({out, in}, seed, 1.5 / std::sqrt(static_cast<double>(in))),
               DType::f16),
        bias_(ctx, random_normal({out}, seed + 1000, 0.5), DType::f16) {
    product.weight = Weight::dense(dense_);
    product.weight.constant = true;
    if (c.format != Format::dense) {
      const PackedWeight packed =
          quantize(ctx, dense_, {.format = c.format, .search = ScaleSearch::from_max});
      dequantize(ctx, packed.weight, dense_);
      prepared_ = prepare(ctx, packed.weight);
      ctx.synchronize();  // before `packed` goes
      product.weight = prepared_.weight;
    }
    weight = dense_.read();
    if (!c.biases) return;
    product.bias = bias_;
    bias = bias_.read();
  }

  DecodeLayer::Product product{};
  Array weight, bias;

 private:
  TestTensor dense_, bias_;
  PackedWeight prepared_{};
};

struct TestNorm {
  TestNorm(Context& ctx, const LayersCase& c, std::uint64_t seed)
      : weight_tensor(ctx, random_normal({c.hidden}, seed), DType::f16),
        bias_tensor(ctx, random_normal({c.hidden}, seed + 1), DType::f16),
        is_rms(c.kind == DecodeLayerKind::serial) {}
  DecodeLayer::Norm norm() const {
    return {.weight = weight_tensor, .bias = is_rms ? Tensor() : bias_tensor.view()};
  }
  Array of(const Array& x) const {
    return is_rms ? reference::rms_norm(x, weight_tensor.read(), kDecodeEps)
                  : reference::layer_norm(x, weight_tensor.read(), bias_tensor.read(), kDecodeEps);
  }

  TestTensor weight_tensor, bias_tensor;
  bool is_rms;
};

// The products that its kind has.
class TestLayer {
 public:
  TestLayer(Context& ctx, const LayersCase& c, std::uint64_t seed)
      : norm1(ctx, c, seed + 1), norm2(ctx, c, seed + 3) {
    stated.norm1 = norm1.norm();
    stated.norm2 = norm2.norm();
    const auto add = [&](Member member, std::int64_t out, std::int64_t in) {
      products_.emplace_back(
          member, std::make_unique<TestProduct>(ctx, c, out, in, seed + 5 + products_.size()));
      stated.*member = products_.back().second->product;
    };
    const std::int64_t width = c.heads * c.dim, kv_width = c.kv_heads * c.dim;
    add(&DecodeLayer::up, c.inner, c.hidden);
    add(&DecodeLayer::down, c.hidden, c.inner);
    add(&DecodeLayer::output, c.hidden, width);
    if (c.kind == DecodeLayerKind::parallel) {
      add(&DecodeLayer::qkv, 3 * width, c.hidden);
    } else {
      add(&DecodeLayer::q, width, c.hidden);
      add(&DecodeLayer::k, kv_width, c.hidden);
      add(&DecodeLayer::v, kv_width, c.hidden);
      add(&DecodeLayer::gate, c.inner, c.hidden);
    }
  }

  using Member = DecodeLayer::Product DecodeLayer::*;
  Array weight(Member member) const { return product(member).weight; }
  Array bias(Member member) const { return product(member).bias; }

  TestNorm norm1, norm2;
  DecodeLayer stated{};

 private:
  const TestProduct& product(Member member) const {
    const auto found = std::find_if(products_.begin(), products_.end(),
                                    [&](const auto& each) { return each.first == member; });
    return *found->second;
  }
  std::vector<std::pair<Member, std::unique_ptr<TestProduct>>> products_;
};

inline Array shaped(Array array, std::vector<std::int64_t> shape) {
  array.shape = std::move(shape);
  return array;
}

// The tensors of a step, and what the twins make of it.
class LayersCall {
 public:
  LayersCall(Context& ctx, const LayersCase& c)
      : c_(c),
        positions_(ctx, Array({1}, 1234), DType::i64),
        slot_(make_slot()),
        slots_(ctx, slot_, DType::i32),
        table_(ctx, make_table(), DType::i32),
        lengths_(ctx, Array({1}, static_cast<double>(c.keys)), DType::i32),
        holes_(ctx, make_holes(), DType::i32),
        inv_freq_(ctx, make_frequencies(), DType::f32),
        x(ctx, random_normal({1, c.hidden}, 2), DType::f16),
        keys(ctx, random_normal({c.layers, c.pages(), c.page, c.kv_heads, c.dim}, 3), DType::f16),
        values(ctx, random_normal({c.layers, c.pages(), c.page, c.kv_heads, c.dim}, 4), DType::f16),
        embedding(ctx, random_normal({LayersCase::kVocab, c.hidden}, 5), DType::f16,
                  c.table_layout),
        ids(ctx, Array({1}, static_cast<double>(c.id.value_or(0))), c.ids),
        drawn(ctx, make_drawn(), DType::i32),
        final_norm(ctx, c, 6) {
    for (std::int64_t l = 0; l < c.layers; ++l) {
      layers_.emplace_back(ctx, c, static_cast<std::uint64_t>(100 * l + 100));
      stated_.push_back(layers_.back().stated);
    }
    args = {.kind = c.kind,
            .layers = stated_,
            .x = x,
            .eps = static_cast<float>(kDecodeEps),
            .activation = c.activation,
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .dim = c.dim,
            .rope = {inv_freq_, c.style},
            .positions = positions_,
            .slots = slots_,
            .keys = {.first = keys.view().select(0, 0), .stride = keys.view().stride(0)},
            .values = {.first = values.view().select(0, 0), .stride = values.view().stride(0)},
            .pages = {.table = table_, .lengths = lengths_, .holes = holes_},
            .mask = c.mask};
    if (c.id) args.embedding = {.ids = ids, .table = Weight::dense(embedding), .drawn = drawn};
    if (c.final_norm) args.final_norm = final_norm.norm();
  }

  struct Expected {
    Array x, keys, values;
  };
  Expected expected() const {
    Expected result{start(), keys.read(), values.read()};
    for (std::int64_t l = 0; l < c_.layers; ++l) {
      const TestLayer& layer = layers_[static_cast<std::size_t>(l)];
      const bool parallel = c_.kind == DecodeLayerKind::parallel;
      const Array attended = attend(layer, l, layer.norm1.of(result.x), result);
      const auto linear = [&](const Array& from, TestLayer::Member member, Activation activation,
                              const Array& residual) {
        return reference::linear(from, layer.weight(member), layer.bias(member), activation,
                                 residual);
      };
      const Array y = linear(attended, &DecodeLayer::output, Activation::none, result.x);
      const Array normed = layer.norm2.of(parallel ? result.x : y);
      const Array inner =
          parallel
              ? linear(normed, &DecodeLayer::up, c_.activation, {})
              : reference::gated_linear(
                    normed, layer.weight(&DecodeLayer::gate), layer.weight(&DecodeLayer::up),
                    c_.activation, layer.bias(&DecodeLayer::gate), layer.bias(&DecodeLayer::up));
      result.x = linear(inner, &DecodeLayer::down, Activation::none, y);
    }
    if (c_.final_norm) result.x = final_norm.of(result.x);
    return result;
  }

 private:
  // Query, key or value: [1, 1, heads, dim].
  Array heads_of(const TestLayer& layer, const Array& normed, int which) const {
    const std::int64_t heads = which == 0 ? c_.heads : c_.kv_heads;
    const std::vector<std::int64_t> shape{1, 1, heads, c_.dim};
    if (c_.kind == DecodeLayerKind::serial) {
      const TestLayer::Member member = which == 0   ? &DecodeLayer::q
                                       : which == 1 ? &DecodeLayer::k
                                                    : &DecodeLayer::v;
      return shaped(reference::linear(normed, layer.weight(member), layer.bias(member)), shape);
    }
    const Array all = shaped(
        reference::linear(normed, layer.weight(&DecodeLayer::qkv), layer.bias(&DecodeLayer::qkv)),
        {c_.heads, 3, c_.dim});
    Array result(shape);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::copy_n(all.row(h, which), c_.dim, result.row(0, 0, h));
    }
    return result;
  }
  // Leaves key and value in the layer's pages.
  Array attend(const TestLayer& layer, std::int64_t l, const Array& normed, Expected& to) const {
    const auto rotated = [&](const Array& heads) {
      return reference::rotary(heads, positions_.read(), inv_freq_.read(), c_.style);
    };
    const auto append = [&](const Array& token, Array& pages) {
      const std::int64_t size = c_.pages() * c_.page * c_.kv_heads * c_.dim;
      Array of_layer({c_.pages(), c_.page, c_.kv_heads, c_.dim});
      std::copy_n(pages.data.begin() + l * size, size, of_layer.data.begin());
      of_layer = reference::kv_append(shaped(token, {1, c_.kv_heads, c_.dim}), slot_, of_layer);
      std::copy_n(of_layer.data.begin(), size, pages.data.begin() + l * size);
      return of_layer;
    };
    reference::AttentionInputs in{.q = rotated(heads_of(layer, normed, 0)), .mask = c_.mask};
    in.k = append(rotated(heads_of(layer, normed, 1)), to.keys);
    in.v = append(heads_of(layer, normed, 2), to.values);
    in.page_table = table_.read();
    in.lengths = lengths_.read();
    in.holes = holes_.read();
    return shaped(reference::attention(in).out, {1, c_.heads * c_.dim});
  }

  Array make_table() const {
    Array result({1, c_.pages()});
    for (std::int64_t i = 0; i < c_.pages(); ++i) {
      result.at(0, i) = static_cast<double>(c_.pages() - 1 - i);
    }
    return result;
  }
  Array make_slot() const {
    const std::int64_t key = c_.keys - 1, at = key < c_.hole_begin ? key : key + c_.hole_size;
    return Array({1}, make_table().at(0, at / c_.page) * static_cast<double>(c_.page) +
                          static_cast<double>(at % c_.page));
  }
  Array make_holes() const {
    Array result({1, 2});
    result.data = {static_cast<double>(c_.hole_begin), static_cast<double>(c_.hole_size)};
    return result;
  }
  // Ids that -1, -2 and -3 stand for.
  static Array make_drawn() {
    Array result({3});
    result.data = {5, 29, LayersCase::kVocab - 1};
    return result;
  }
  Array start() const {
    if (!c_.id) return x.read();
    const double id = *c_.id < 0 ? make_drawn().data.at(static_cast<std::size_t>(-1 - *c_.id))
                                 : static_cast<double>(*c_.id);
    return reference::embedding(Array({1}, id), embedding.read());
  }
  Array make_frequencies() const {
    const std::vector<float> table = rope_inv_freq(c_.dims > 0 ? c_.dims : c_.dim);
    Array result({std::ssize(table)});
    result.data.assign(table.begin(), table.end());
    return result;
  }

  LayersCase c_;
  TestTensor positions_;
  Array slot_;
  TestTensor slots_, table_, lengths_, holes_, inv_freq_;
  std::deque<TestLayer> layers_;
  std::vector<DecodeLayer> stated_;

 public:
  TestTensor x, keys, values, embedding, ids, drawn;
  TestNorm final_norm;
  DecodeLayersArgs args{};
};

// Activations are rounded to f16 between products.
inline testing::AssertionResult is_near(const Array& actual, const Array& expected) {
  double largest = 0;
  for (const double each : expected.data) largest = std::max(largest, std::abs(each));
  return close(actual, expected, 0, 0.005 * largest);
}

}  // namespace tessera::test
