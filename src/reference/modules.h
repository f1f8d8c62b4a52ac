// The modules in float64, built from the reference ops.
#pragma once

#include <cstdint>

#include "reference/array.h"
#include "tessera/modules.h"

namespace tessera::reference {

// The elements of a tensor in host memory: f32, f16 or bf16, with any strides.
Array to_array(const Tensor& tensor);

// The decoded weights that a Linear computes with.
struct LinearWeights {
  Array weight{};  // [out, in]
  Array bias{};    // empty: none
  Activation activation = Activation::none;
};
// The weights of a layer on the CPU that is still dense. With a packed format, these are the
// weights that the layer will compute with once it is packed.
LinearWeights weights_of(Context& ctx, const Linear& layer, Format format = Format::dense);

struct AttentionWeights {
  LinearWeights qkv{}, output{};
  std::int64_t n_heads = 0, kv_heads = 0;
  Array inv_freq{};  // empty: no rotary embedding
  RopeStyle rope_style = RopeStyle::half_split;
};
AttentionWeights weights_of(Context& ctx, const FlashAttention& module,
                            const FlashAttentionOptions& options, const PrecisionPlan& plan);
// x is [batch, seq, d_model]. The residual is not added.
Array flash_attention(const AttentionWeights& weights, const Array& x, const Mask& mask);

struct BlockWeights {
  TransformerBlockOptions options{};
  AttentionWeights attention{};
  Array norm_weights[2]{}, norm_biases[2]{};
  LinearWeights gate{}, up{}, down{};
};
// The weights of a block that is still dense, as they will be under `plan`.
BlockWeights weights_of(Context& ctx, const TransformerBlock& block, const PrecisionPlan& plan);
Array transformer_block(const BlockWeights& weights, const Array& x, const Mask& mask);

// A plan that leaves everything dense.
inline const PrecisionPlan kDensePlan{.rules = {}, .otherwise = Format::dense};

}  // namespace tessera::reference
