// TransformerBlock: two norms, attention and an MLP, with the residual adds fused into the
// products.
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/wildcard.h"
#include "core/workspace.h"
#include "modules/host_tensor.h"
#include "tessera/modules.h"

namespace tessera {
namespace {

Activation mlp_activation(MlpKind kind) {
  switch (kind) {
    case MlpKind::gelu:
      return Activation::gelu;
    case MlpKind::gelu_tanh:
      return Activation::gelu_tanh;
    case MlpKind::silu_gated:
      return Activation::none;  // the gate has the activation
  }
  return Activation::none;
}

}  // namespace

Format PrecisionPlan::format_of(std::string_view layer) const {
  for (const PrecisionRule& rule : rules) {
    if (wildcard_match(rule.pattern, layer)) return rule.format;
  }
  return otherwise;
}

TransformerBlock::TransformerBlock(Context& ctx, std::int64_t d_model, std::int64_t n_heads,
                                   std::int64_t d_ff, const Options& options)
    : options_(options),
      d_model_(d_model),
      d_ff_(d_ff),
      attention_(ctx, d_model, n_heads, options.attention) {
  const bool bias = options.attention.bias;
  const DType dtype = options.attention.dtype;
  const std::uint64_t seed = options.attention.seed + 2;  // attention uses the first two seeds
  if (options.mlp == MlpKind::silu_gated) {
    if (bias) {
      fail(ErrorCode::invalid_argument,
           "a gated MLP has no bias: set attention.bias to false for the block");
    }
    gate_ = Linear(ctx, d_model, d_ff, Activation::none, false, dtype, seed);
  }
  up_ = Linear(ctx, d_model, d_ff, mlp_activation(options.mlp), bias, dtype, seed + 1);
  down_ = Linear(ctx, d_ff, d_model, Activation::none, bias, dtype, seed + 2);

  norm_storage_ = Buffer(dtype, {4, d_model}, ctx.device());
  const Tensor norms = norm_storage_.tensor(dtype, {4, d_model});
  std::vector<float> ones_and_zeros(static_cast<std::size_t>(2 * d_model), 1.f);
  ones_and_zeros.resize(static_cast<std::size_t>(4 * d_model), 0.f);
  fill(ctx, norms, ones_and_zeros);
  for (int layer = 0; layer < 2; ++layer) {
    norm_weights_[layer] = norms.select(0, layer);
    if (options.norm == NormKind::layer_norm) norm_biases_[layer] = norms.select(0, 2 + layer);
  }
  if (options.use_fp4) quantize(ctx, options.plan);
}

void TransformerBlock::quantize(Context& ctx, const PrecisionPlan& plan) {
  const std::pair<const char*, Linear*> layers[] = {{"attention.qkv", &attention_.qkv()},
                                                    {"attention.output", &attention_.output()},
                                                    {"mlp.gate", &gate_},
                                                    {"mlp.up", &up_},
                                                    {"mlp.down", &down_}};
  for (const auto& [name, layer] : layers) {
    if (layer->weight().defined()) layer->quantize(ctx, {.format = plan.format_of(name)});
  }
}

std::int64_t TransformerBlock::bytes() const {
  std::int64_t total = norm_weights_[0].bytes() * 2;
  if (norm_biases_[0].defined()) total += norm_biases_[0].bytes() * 2;
  for (const Linear* layer : {&attention_.qkv(), &attention_.output(), &gate_, &up_, &down_}) {
    if (layer->weight().defined()) total += layer->bytes();
  }
  return total;
}

void TransformerBlock::normalize(Context& ctx, int layer, const Tensor& x,
                                 const Tensor& out) const {
  const NormArgs args{.x = x,
                      .weight = norm_weight(layer),
                      .bias = norm_bias(layer),
                      .eps = options_.eps,
                      .out = out};
  if (options_.norm == NormKind::layer_norm) {
    layer_norm(ctx, args);
  } else {
    rms_norm(ctx, args);
  }
}

void TransformerBlock::mlp(Context& ctx, const Tensor& x, const Tensor& residual,
                           const Tensor& out) const {
  Workspace::Frame frame(ctx.workspace());
  const Tensor hidden = frame.take(x.dtype, {x.size(0), x.size(1), d_ff_});
  if (options_.mlp == MlpKind::silu_gated) {
    gated_linear(ctx, {.x = x, .gate = gate_.weight(), .up = up_.weight(), .out = hidden});
  } else {
    up_.forward(ctx, x, hidden);
  }
  down_.forward(ctx, hidden, out, residual);
}

void TransformerBlock::forward(Context& ctx, const Tensor& x, const Tensor& out,
                               const Mask& mask) const {
  if (x.rank != 3 || x.size(2) != d_model_ || x.dtype != norm_weights_[0].dtype) {
    fail(ErrorCode::invalid_argument, "TransformerBlock: x must be {}[batch, seq, {}], got {}",
         name(norm_weights_[0].dtype), d_model_, to_string(x));
  }
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(x.dtype, {x.size(0), x.size(1), d_model_});
  const Tensor attended = frame.take(x.dtype, {x.size(0), x.size(1), d_model_});

  normalize(ctx, 1, x, normed);
  attention_.forward(ctx, normed, attended, mask, x);  // attended = x + attention
  normalize(ctx, 2, options_.parallel_residual ? x : attended, normed);
  mlp(ctx, normed, attended, out);
}

}  // namespace tessera
