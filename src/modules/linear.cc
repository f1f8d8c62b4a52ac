// Linear and FusedFP4Linear: layers that own a weight and a bias.
#include <cmath>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "modules/host_tensor.h"
#include "tessera/modules.h"

namespace tessera {

Linear::Linear(Context& ctx, std::int64_t in, std::int64_t out, Activation activation, bool bias,
               DType dtype, std::uint64_t seed)
    : activation_(activation) {
  if (in < 1 || out < 1) {
    fail(ErrorCode::invalid_argument,
         "a linear layer needs at least one input and one output, got {} -> {}", in, out);
  }
  if (!is_float(dtype)) {
    fail(ErrorCode::invalid_argument, "a layer's dtype is f32, f16 or bf16, got {}", name(dtype));
  }
  packed_.storage = Buffer(dtype, {out, in}, ctx.device());
  packed_.weight = Weight::dense(packed_.storage.tensor(dtype, {out, in}));
  fill_normal(ctx, packed_.weight.data, seed, 1.f / std::sqrt(static_cast<float>(in)));
  if (bias) {
    bias_storage_ = Buffer(dtype, {out}, ctx.device());
    bias_ = bias_storage_.tensor(dtype, {out});
    fill(ctx, bias_, std::vector<float>(static_cast<std::size_t>(out), 0.f));
  }
}

void Linear::load(Context& ctx, const Tensor& weight, const Tensor& bias) {
  if (packed_.weight.format != Format::dense) {
    fail(ErrorCode::invalid_argument,
         "this layer is packed as {}: load the weights first, then quantize it",
         name(packed_.weight.format));
  }
  if (bias.defined() && !bias_.defined()) {
    fail(ErrorCode::invalid_argument, "bias {} was given to a layer without one", to_string(bias));
  }
  if (bias.defined() && (bias.rank != 1 || bias.size(0) != out_features())) {
    fail(ErrorCode::invalid_argument, "bias must have shape [{}], got {}", out_features(),
         to_string(bias));
  }
  dequantize(ctx, Weight::dense(weight), packed_.weight.data);
  if (bias.defined()) {
    dequantize(ctx, Weight::dense(bias.view({1, -1})), bias_.view({1, -1}));
  }
}

void Linear::quantize(Context& ctx, const QuantizeOptions& options) {
  if (packed_.weight.format != Format::dense) {
    fail(ErrorCode::invalid_argument, "this layer is packed as {} already",
         name(packed_.weight.format));
  }
  if (options.format == Format::dense) return;
  const PackedWeight published = tessera::quantize(ctx, packed_.weight.data, options);
  packed_ = prepare(ctx, published.weight);
}

void Linear::forward(Context& ctx, const Tensor& x, const Tensor& out,
                     const Tensor& residual) const {
  linear(ctx, {.x = x,
               .weight = packed_.weight,
               .bias = bias_,
               .activation = activation_,
               .residual = residual,
               .out = out});
}

std::int64_t Linear::bytes() const {
  return packed_.weight.bytes() + (bias_.defined() ? bias_.bytes() : 0);
}

FusedFP4Linear::FusedFP4Linear(Linear layer, const QuantizeOptions& options)
    : layer_(std::move(layer)), options_(options) {}

FusedFP4Linear::FusedFP4Linear(Context& ctx, std::int64_t in, std::int64_t out,
                               Activation activation, const QuantizeOptions& options)
    : layer_(ctx, in, out, activation), options_(options) {
  layer_.quantize(ctx, options);
}

void FusedFP4Linear::load(Context& ctx, const Tensor& weight, const Tensor& bias) {
  Linear dense(ctx, layer_.in_features(), layer_.out_features(), layer_.activation());
  dense.load(ctx, weight, bias);
  dense.quantize(ctx, options_);
  layer_ = std::move(dense);
}

FusedFP4Linear quantize(Context& ctx, Linear dense, const QuantizeOptions& options) {
  dense.quantize(ctx, options);
  return FusedFP4Linear(std::move(dense), options);
}

}  // namespace tessera
