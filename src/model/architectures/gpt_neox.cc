// GPT-NeoX and Pythia: what they read of config.json, their tensors and their layer.
//
//   parallel residual:  x + attention(norm1 x) + mlp(norm2 x)
//   serial residual:    y = x + attention(norm1 x);  y + mlp(norm2 y)
//
// Query, key and value of a head lie side by side in one product, [heads, 3, dim]. Only the first
// elements of a head are rotated.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/branch.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "model/architectures/config_parts.h"
#include "model/architectures/layered_model.h"
#include "model/architectures/registry.h"
#include "model/architectures/shared_weights.h"
#include "tessera/decode_layers.h"
#include "tessera/linear.h"
#include "tessera/norm.h"

namespace tessera::model {
namespace {

// ---- config.json --------------------------------------------------------------------------------

constexpr std::string_view kKeys[] = {"head_dim",
                                      "attention_bias",
                                      "use_parallel_residual",
                                      "rotary_emb_base",
                                      "rope_theta",
                                      "rotary_pct",
                                      "rope_scaling",
                                      "rope_parameters",
                                      "partial_rotary_factor",
                                      "layer_types",
                                      "original_max_position_embeddings"};

void read_options(const JsonView& json, ModelConfig& config) {
  config.head_dim = width_per_head(json, config);
  const auto head_dim = json.optional_integer("head_dim", 1, kMaxHeadDim);
  if (head_dim && *head_dim != config.head_dim) {
    fail(ErrorCode::file, "{}: head_dim is {}; in {} it is hidden_size / num_attention_heads = {}",
         json.where(), *head_dim, config.architecture, config.head_dim);
  }
  config.qkv_bias = config.output_bias = json.optional_boolean("attention_bias").value_or(true);
  config.mlp_bias = true;
  config.parallel_residual = json.optional_boolean("use_parallel_residual").value_or(true);
  constexpr double kDefaultShare = 0.25;
  const double share =
      read_rotary_share(json, {"rotary_pct", "partial_rotary_factor"}, kDefaultShare);
  config.rope = read_rope(json, config, {"rotary_emb_base", "rope_theta"}, share);
  read_windows(json, {}, config);
}

// ---- tensors ------------------------------------------------------------------------------------

// The head's name in files from after and before transformers 5.
constexpr std::string_view kNeoxHeads[] = {"lm_head", "embed_out"};
constexpr std::string_view kNeoxQkv[] = {".attention.query_key_value"};
constexpr ModuleNames kNeoxModules{.table = "gpt_neox.embed_in",
                                   .heads = kNeoxHeads,
                                   .layers = "gpt_neox.layers.",
                                   .norm1 = ".input_layernorm",
                                   .norm2 = ".post_attention_layernorm",
                                   .qkv = kNeoxQkv,
                                   .q_norm = {},
                                   .k_norm = {},
                                   .output = ".attention.dense",
                                   .gate = {},
                                   .up = ".mlp.dense_h_to_4h",
                                   .down = ".mlp.dense_4h_to_h",
                                   .final_norm = "gpt_neox.final_layer_norm"};

struct Norm {
  Tensor weight, bias;  // [hidden]
};

// Up to this many tokens in a step, kernels wait for memory or for each other, and the halves of a
// layer with a parallel residual run side by side on a GPU. With more, each half fills the GPU.
constexpr std::int64_t kFewTokens = 256;

class GptNeox final : public LayeredModel {
 public:
  GptNeox(const ModelConfig& config, DType dtype, WeightSource& weights);

 private:
  void run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                 const FinishedRows& rows, const Tensor& out) const override;
  void run_final_norm(Context& ctx, const CacheStep& step, const Tensor& x,
                      const Tensor& out) const override {
    norm(ctx, step, final_norm_, x, out);
  }

  struct Layer {
    Norm norm1, norm2;
    Dense qkv, output;  // [heads * 3 * dim, hidden], [hidden, hidden]
    Dense up, down;     // [intermediate, hidden], [hidden, intermediate]
  };

  void norm(Context& ctx, const CacheStep& step, const Norm& weights, const Tensor& x,
            const Tensor& out) const;
  void attend(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
              const FinishedRows& rows, const Tensor& mixed) const;
  void put_back(Context& ctx, const Dense& dense, const Tensor& in, const Tensor& residual,
                std::int64_t fixed_rows, const Tensor& out) const;
  void run_mlp(Context& ctx, const ForwardArgs& args, const Layer& layer, const Tensor& x,
               const Tensor& residual, const FinishedRows& rows, const Tensor& out) const;

  std::vector<Layer> layers_;
  bool fuses_layers_;  // LoadOptions::fuse_layers
  Norm final_norm_;
};

GptNeox::GptNeox(const ModelConfig& config, DType dtype, WeightSource& weights)
    : LayeredModel(config, dtype, weights), fuses_layers_(weights.fuses_layers()) {
  const std::int64_t hidden = config.hidden;
  // Rows and columns of this process's part of the model.
  const Range heads = Shard::times(shard_.heads, config.head_dim);
  const Range qkv_rows = Shard::times(shard_.heads, 3 * config.head_dim);
  const bool first = shard_.is_first();  // it adds what is added once
  const auto read_norm = [&](const std::string& name) {
    return Norm{weights.vector(name + ".weight", hidden), weights.vector(name + ".bias", hidden)};
  };

  TableAndHead ends(weights, kNeoxModules, config, shard_.vocab);
  embedding_ = ends.read_table();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const auto at = [&](std::string_view module) { return kNeoxModules.in_layer(i, module); };
    Layer layer;
    layer.norm1 = read_norm(at(kNeoxModules.norm1));
    layer.qkv = read_dense(weights, at(kNeoxQkv[0]), 3 * hidden, hidden, config.qkv_bias,
                           {.rows = qkv_rows});
    layer.output = read_dense(weights, at(kNeoxModules.output), hidden, hidden, config.output_bias,
                              {.columns = heads}, first);
    layer.norm2 = read_norm(at(kNeoxModules.norm2));
    layer.up = read_dense(weights, at(kNeoxModules.up), config.intermediate, hidden,
                          config.mlp_bias, {.rows = shard_.inner});
    layer.down = read_dense(weights, at(kNeoxModules.down), hidden, config.intermediate,
                            config.mlp_bias, {.columns = shard_.inner}, first);
    layers_.push_back(layer);
    if (config.parallel_residual && may_decode_at_once(weights)) {
      decode_layers_.push_back({.norm1 = {layer.norm1.weight, layer.norm1.bias},
                                .norm2 = {layer.norm2.weight, layer.norm2.bias},
                                .qkv = {layer.qkv.weight, layer.qkv.bias},
                                .up = {layer.up.weight, layer.up.bias},
                                .down = {layer.down.weight, layer.down.bias},
                                .output = {layer.output.weight, layer.output.bias}});
    }
  }
  final_norm_ = read_norm(std::string(kNeoxModules.final_norm));
  decode_norm_ = {final_norm_.weight, final_norm_.bias};
  head_ = ends.read_head(embedding_);
  finish_reading(weights);
}

void GptNeox::norm(Context& ctx, const CacheStep& step, const Norm& weights, const Tensor& x,
                   const Tensor& out) const {
  layer_norm(ctx, {.x = x,
                   .weight = weights.weight,
                   .bias = weights.bias,
                   .eps = static_cast<float>(config_.norm_eps),
                   .out = out,
                   .fixed_rows = step.batch_invariant});
}

// out: the rows of x that are finished, replaced by the layer's result.
void GptNeox::run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                        const FinishedRows& rows, const Tensor& out) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t n = rows.count, heads = config_.heads, dim = config_.head_dim;
  const bool parallel = config_.parallel_residual;
  Workspace::Frame frame(ctx.workspace());
  const Tensor mixed = n > 0 ? frame.take(dtype_, {n, heads, dim}) : Tensor();
  if (!parallel || n == 0) {
    attend(ctx, args, index, x, rows, mixed);
    if (n == 0) return;
    const Tensor attended = frame.take(dtype_, {n, config_.hidden});
    const auto own = [&](const Tensor& residual) {
      return shard_.is_first() ? residual : Tensor();
    };
    put_back(ctx, layer.output, mixed, own(out), rows.fixed, attended);
    shard_.add_up(ctx, attended);
    run_mlp(ctx, args, layer, attended, own(attended), rows, out);
  } else {  // the two halves of the layer read the same x
    const Tensor with_mlp = frame.take(dtype_, {n, config_.hidden});
    Branch mlp(ctx, fuses_layers_ && x.size(0) <= kFewTokens);
    run_mlp(ctx, args, layer, out, shard_.is_first() ? out : Tensor(), rows, with_mlp);
    mlp.end();
    attend(ctx, args, index, x, rows, mixed);
    mlp.join();
    put_back(ctx, layer.output, mixed, with_mlp, rows.fixed, out);
  }
  shard_.add_up(ctx, out);
}

// Attention over norm1 x: mixed [rows, heads, dim], or only what the cache keeps of x.
void GptNeox::attend(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                     const FinishedRows& rows, const Tensor& mixed) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t tokens = x.size(0), heads = config_.heads, dim = config_.head_dim;
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(dtype_, {tokens, config_.hidden});
  const Tensor qkv = frame.take(dtype_, {tokens, heads, 3, dim});
  norm(ctx, *args.step, layer.norm1, x, normed);
  linear(ctx, {.x = normed,
               .weight = layer.qkv.weight,
               .bias = layer.qkv.bias,
               .out = qkv.view({tokens, 3 * heads * dim}),
               .fixed_rows = all_rows(*args.step).fixed});
  const Tensor q = qkv.select(2, 0), k = qkv.select(2, 1), v = qkv.select(2, 2);

  const std::int64_t n = rows.count;
  const RotateAndAppendArgs rotated{.layer = index, .q = q, .k = k, .v = v, .rope = rope_};
  if (append_and_attend(ctx, args, rows, {.append = rotated, .out = mixed})) return;
  rotate_and_append(ctx, args, rotated);
  if (n == 0) return;
  const Tensor finished = take_rows(ctx, frame, rows, qkv.view({tokens, 3 * heads * dim}));
  cached_attention(ctx, args,
                   {.groups = rows.groups,
                    .q = finished.view({n, heads, 3, dim}).select(2, 0),
                    .out = mixed,
                    .layer = index,
                    .window = 0,
                    .rope = rope_});
}

// The product back into the residual stream: out = weight * in + residual.
void GptNeox::put_back(Context& ctx, const Dense& dense, const Tensor& in, const Tensor& residual,
                       std::int64_t fixed_rows, const Tensor& out) const {
  linear(ctx, {.x = in.view({in.size(0), dense.weight.in_features}),
               .weight = dense.weight,
               .bias = dense.bias,
               .residual = residual,
               .out = out,
               .fixed_rows = fixed_rows});
}

// out = down(activation(up(norm2 x))) + residual
void GptNeox::run_mlp(Context& ctx, const ForwardArgs& args, const Layer& layer, const Tensor& x,
                      const Tensor& residual, const FinishedRows& rows, const Tensor& out) const {
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(dtype_, {rows.count, config_.hidden});
  const Tensor inner = frame.take(dtype_, {rows.count, layer.up.weight.out_features});
  norm(ctx, *args.step, layer.norm2, x, normed);
  linear(ctx, {.x = normed,
               .weight = layer.up.weight,
               .bias = layer.up.bias,
               .activation = config_.activation,
               .out = inner,
               .fixed_rows = rows.fixed});
  put_back(ctx, layer.down, inner, residual, rows.fixed, out);
}

std::unique_ptr<Model> make_neox(const ModelConfig& config, DType dtype, WeightSource& weights) {
  return std::make_unique<GptNeox>(config, dtype, weights);
}

// Residuals and activations have no ops of their own: they are part of linear's epilogue.
std::vector<StepCalls> neox_layer_calls(const ModelConfig&) {
  return {{"layer_norm", 2, "before attention, before the MLP"},
          {"linear", 4, "qkv, dense + residual, up + activation, down + residual"}};
}

}  // namespace

extern const Architecture kGptNeox;
constexpr Architecture kGptNeox{.name = "gpt_neox",
                                .causal_lm = "GPTNeoXForCausalLM",
                                .defaults = {.max_positions = 2048,
                                             .eps_key = "layer_norm_eps",
                                             .eps = 1e-5,
                                             .activation = Activation::gelu,
                                             .bos = 0,
                                             .eos = 2},
                                .keys = kKeys,
                                .read_options = read_options,
                                .make = make_neox,
                                .norm = NormKind::layer_norm,
                                .modules = kNeoxModules,
                                .layer_calls = neox_layer_calls};

}  // namespace tessera::model
