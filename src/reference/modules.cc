#include "reference/modules.h"

#include <numeric>
#include <utility>
#include <vector>

#include "core/rows.h"
#include "core/type_switch.h"
#include "reference/attention.h"
#include "reference/linear.h"
#include "reference/norm.h"
#include "reference/quant.h"
#include "reference/rotary.h"

namespace tessera::reference {
namespace {

// Heads [begin, end) of [batch, seq, heads, dim].
Array heads_of(const Array& x, std::int64_t begin, std::int64_t end) {
  Array out({x.size(0), x.size(1), end - begin, x.size(3)});
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t s = 0; s < x.size(1); ++s) {
      for (std::int64_t h = begin; h < end; ++h) {
        for (std::int64_t d = 0; d < x.size(3); ++d) {
          out.at(b, s, h - begin, d) = x.at(b, s, h, d);
        }
      }
    }
  }
  return out;
}

Array reshaped(Array x, std::vector<std::int64_t> shape) {
  x.shape = std::move(shape);
  return x;
}

Array sum(Array a, const Array& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] += b.data[i];
  return a;
}

Array apply(const LinearWeights& layer, const Array& x) {
  return linear(x, layer.weight, layer.bias, layer.activation);
}

Array normalized(const BlockWeights& weights, int layer, const Array& x) {
  const double eps = weights.options.eps;
  if (weights.options.norm == NormKind::rms_norm) {
    return rms_norm(x, weights.norm_weights[layer], eps);
  }
  return layer_norm(x, weights.norm_weights[layer], weights.norm_biases[layer], eps);
}

Array mlp(const BlockWeights& weights, const Array& x) {
  if (weights.options.mlp == MlpKind::silu_gated) {
    return apply(weights.down,
                 gated_linear(x, weights.gate.weight, weights.up.weight, Activation::silu));
  }
  return apply(weights.down, apply(weights.up, x));
}

}  // namespace

Array to_array(const Tensor& tensor) {
  std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
  Array result(std::move(shape));
  const Rows rows(tensor);
  auto to = result.data.begin();
  with_float_type(tensor.dtype, [&](auto type) {
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      const auto* row = rows.row<decltype(type)>(i);
      for (std::int64_t j = 0; j < rows.cols(); ++j) *to++ = to_float(row[j]);
    }
  });
  return result;
}

LinearWeights weights_of(Context& ctx, const Linear& layer, Format format) {
  if (!layer.weight().defined()) return {};
  LinearWeights result;
  if (format == Format::dense) {
    result.weight = to_array(layer.weight().data);
  } else {
    result.weight =
        dequantize(tessera::quantize(ctx, layer.weight().data, {.format = format}).weight);
  }
  if (layer.bias().defined()) result.bias = to_array(layer.bias());
  result.activation = layer.activation();
  return result;
}

AttentionWeights weights_of(Context& ctx, const FlashAttention& module,
                            const FlashAttentionOptions& options, const PrecisionPlan& plan) {
  AttentionWeights result;
  result.qkv = weights_of(ctx, module.qkv(), plan.format_of("attention.qkv"));
  result.output = weights_of(ctx, module.output(), plan.format_of("attention.output"));
  result.n_heads = module.n_heads();
  result.kv_heads = module.kv_heads();
  if (module.inv_freq().defined()) result.inv_freq = to_array(module.inv_freq());
  result.rope_style = options.rope_style;
  return result;
}

Array flash_attention(const AttentionWeights& weights, const Array& x, const Mask& mask) {
  const std::int64_t batch = x.size(0), seq = x.size(1);
  const std::int64_t q_heads = weights.n_heads, kv_heads = weights.kv_heads;
  const std::int64_t all_heads = q_heads + 2 * kv_heads, dim = x.size(2) / q_heads;
  const Array qkv = reshaped(apply(weights.qkv, x), {batch, seq, all_heads, dim});
  Array q = heads_of(qkv, 0, q_heads), k = heads_of(qkv, q_heads, q_heads + kv_heads);
  if (!weights.inv_freq.empty()) {
    Array positions({seq});
    std::iota(positions.data.begin(), positions.data.end(), 0.0);
    q = rotary(q, positions, weights.inv_freq, weights.rope_style);
    k = rotary(k, positions, weights.inv_freq, weights.rope_style);
  }
  Array out = attention({.q = std::move(q),
                         .k = std::move(k),
                         .v = heads_of(qkv, q_heads + kv_heads, all_heads),
                         .mask = mask})
                  .out;
  return apply(weights.output, reshaped(std::move(out), {batch, seq, q_heads * dim}));
}

BlockWeights weights_of(Context& ctx, const TransformerBlock& block, const PrecisionPlan& plan) {
  BlockWeights result;
  result.options = block.options();
  result.attention = weights_of(ctx, block.attention(), block.options().attention, plan);
  for (int layer = 0; layer < 2; ++layer) {
    result.norm_weights[layer] = to_array(block.norm_weight(layer + 1));
    if (block.norm_bias(layer + 1).defined()) {
      result.norm_biases[layer] = to_array(block.norm_bias(layer + 1));
    }
  }
  result.gate = weights_of(ctx, block.gate(), plan.format_of("mlp.gate"));
  result.up = weights_of(ctx, block.up(), plan.format_of("mlp.up"));
  result.down = weights_of(ctx, block.down(), plan.format_of("mlp.down"));
  return result;
}

Array transformer_block(const BlockWeights& weights, const Array& x, const Mask& mask) {
  const Array attended =
      sum(flash_attention(weights.attention, normalized(weights, 0, x), mask), x);
  const Array& mlp_input = weights.options.parallel_residual ? x : attended;
  return sum(mlp(weights, normalized(weights, 1, mlp_input)), attended);
}

}  // namespace tessera::reference
