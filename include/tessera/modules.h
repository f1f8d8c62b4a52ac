// Layers that own their weights, built from the ops: the parts of a model.
//
// Threads: any number may call const functions at the same time, each with its own Context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/linear.h"
#include "tessera/norm.h"
#include "tessera/quant.h"
#include "tessera/rotary.h"
#include "tessera/weight.h"

namespace tessera {

// act(x W^T + b). The weights are dense until quantize(), and normal random numbers of variance
// 1 / in until load().
class Linear {
 public:
  Linear() = default;
  Linear(Context& ctx, std::int64_t in, std::int64_t out, Activation activation = Activation::none,
         bool bias = true, DType dtype = DType::f32, std::uint64_t seed = 0);

  // Copies weight [out, in] and bias [out] from the Context's device and converts them to the
  // layer's dtype.
  void load(Context& ctx, const Tensor& weight, const Tensor& bias = {});
  // Packs the weights into the layout that the device's kernels read fastest, and drops the dense
  // ones.
  void quantize(Context& ctx, const QuantizeOptions& options = {});

  // x [..., in] -> out [..., out]; a residual is added after the activation.
  void forward(Context& ctx, const Tensor& x, const Tensor& out, const Tensor& residual = {}) const;

  const Weight& weight() const { return packed_.weight; }
  const Tensor& bias() const { return bias_; }
  Activation activation() const { return activation_; }
  std::int64_t in_features() const { return packed_.weight.in_features; }
  std::int64_t out_features() const { return packed_.weight.out_features; }
  // Memory of weights and bias.
  std::int64_t bytes() const;

 private:
  PackedWeight packed_;  // dense until quantize()
  Buffer bias_storage_;
  Tensor bias_;
  Activation activation_ = Activation::none;
};

// A linear layer with 4-bit weights: decode, product, bias and activation in one call.
class FusedFP4Linear {
 public:
  // Random weights, packed, until load() replaces them.
  FusedFP4Linear(Context& ctx, std::int64_t in, std::int64_t out,
                 Activation activation = Activation::none, const QuantizeOptions& options = {});
  // Packs dense weights [out, in] and keeps bias [out].
  void load(Context& ctx, const Tensor& weight, const Tensor& bias = {});

  void forward(Context& ctx, const Tensor& x, const Tensor& out,
               const Tensor& residual = {}) const {
    layer_.forward(ctx, x, out, residual);
  }
  const Linear& layer() const { return layer_; }
  std::int64_t bytes() const { return layer_.bytes(); }

 private:
  friend FusedFP4Linear quantize(Context& ctx, Linear dense, const QuantizeOptions& options);
  FusedFP4Linear(Linear layer, const QuantizeOptions& options);

  Linear layer_;
  QuantizeOptions options_;
};
// Turns a dense layer into a packed one. Move the layer in to hold only one copy of its weights.
FusedFP4Linear quantize(Context& ctx, Linear dense, const QuantizeOptions& options = {});

struct FlashAttentionOptions {
  std::int64_t kv_heads = 0;     // 0: as many as heads
  std::int64_t rotary_dims = 0;  // 0: no rotary embedding
  double rope_theta = 10000.0;
  RopeStyle rope_style = RopeStyle::half_split;
  bool bias = true;
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
};

// Self-attention with its projections: out = Wo attention(Wq x, Wk x, Wv x) + residual.
class FlashAttention {
 public:
  using Options = FlashAttentionOptions;

  FlashAttention() = default;
  FlashAttention(Context& ctx, std::int64_t d_model, std::int64_t n_heads,
                 const Options& options = {});

  // x, out, residual: [batch, seq, d_model] of the module's dtype. Positions for the rotary
  // embedding are 0 .. seq - 1.
  void forward(Context& ctx, const Tensor& x, const Tensor& out, const Mask& mask = Mask::causal(),
               const Tensor& residual = {}) const;

  Linear& qkv() { return qkv_; }  // rows: all query heads, then key heads, then value heads
  Linear& output() { return output_; }
  const Linear& qkv() const { return qkv_; }
  const Linear& output() const { return output_; }
  const Tensor& inv_freq() const { return inv_freq_; }
  std::int64_t n_heads() const { return n_heads_; }
  std::int64_t kv_heads() const { return kv_heads_; }
  std::int64_t head_dim() const { return head_dim_; }

 private:
  Linear qkv_, output_;
  std::int64_t n_heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
  DType dtype_ = DType::f32;
  RopeStyle rope_style_ = RopeStyle::half_split;
  Buffer inv_freq_storage_;
  Tensor inv_freq_;
};

// Which layers are packed, and how. The first rule whose pattern matches a layer's name decides; in
// a pattern, * stands for anything. A layer without a match takes `otherwise`. Format::dense leaves
// it as it is.
struct PrecisionRule {
  std::string pattern;
  Format format = Format::dense;
};
struct PrecisionPlan {
  std::vector<PrecisionRule> rules{};
  Format otherwise = Format::nvfp4;

  Format format_of(std::string_view layer) const;
};

enum class NormKind : std::uint8_t { layer_norm, rms_norm };
enum class MlpKind : std::uint8_t { gelu, gelu_tanh, silu_gated };

struct TransformerBlockOptions {
  bool use_fp4 = false;
  // With use_fp4. Layers: attention.qkv, attention.output, mlp.gate, mlp.up, mlp.down.
  PrecisionPlan plan{};
  bool parallel_residual = false;
  NormKind norm = NormKind::layer_norm;
  MlpKind mlp = MlpKind::gelu;
  float eps = 1e-5f;
  FlashAttentionOptions attention{};  // its bias, dtype and seed are those of the whole block
};

// One transformer layer.
//   serial:    x1 = x + attention(norm1(x));  out = x1 + mlp(norm2(x1))
//   parallel:  out = x + attention(norm1(x)) + mlp(norm2(x))
class TransformerBlock {
 public:
  using Options = TransformerBlockOptions;

  TransformerBlock(Context& ctx, std::int64_t d_model, std::int64_t n_heads, std::int64_t d_ff,
                   const Options& options = {});

  // x, out: [batch, seq, d_model]; out may be the same memory as x.
  void forward(Context& ctx, const Tensor& x, const Tensor& out,
               const Mask& mask = Mask::causal()) const;

  const Options& options() const { return options_; }
  FlashAttention& attention() { return attention_; }
  const FlashAttention& attention() const { return attention_; }
  // Norm weights: layer 1 is before attention, layer 2 before the MLP. Ones, until written.
  const Tensor& norm_weight(int layer) const { return norm_weights_[layer - 1]; }
  // Zeros, until written; empty with rms_norm.
  const Tensor& norm_bias(int layer) const { return norm_biases_[layer - 1]; }
  Linear& gate() { return gate_; }  // silu_gated only
  Linear& up() { return up_; }
  Linear& down() { return down_; }
  const Linear& gate() const { return gate_; }
  const Linear& up() const { return up_; }
  const Linear& down() const { return down_; }

  // Packs the layers as the plan says. With use_fp4 the constructor has already done this.
  void quantize(Context& ctx, const PrecisionPlan& plan);
  // Memory of all weights.
  std::int64_t bytes() const;

 private:
  void normalize(Context& ctx, int layer, const Tensor& x, const Tensor& out) const;
  void mlp(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& out) const;

  Options options_;
  std::int64_t d_model_, d_ff_;
  FlashAttention attention_;
  Linear gate_, up_, down_;
  Buffer norm_storage_;
  Tensor norm_weights_[2], norm_biases_[2];
};

}  // namespace tessera
