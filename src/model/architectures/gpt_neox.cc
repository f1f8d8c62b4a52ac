// GPT-NeoX and Pythia.
//
//   parallel residual:  x + attention(norm1 x) + mlp(norm2 x)
//   serial residual:    y = x + attention(norm1 x);  y + mlp(norm2 y)
//
// Query, key and value of a head lie side by side in one product, [heads, 3, dim]. Only the first
// elements of a head are rotated.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/workspace.h"
#include "model/architectures/architectures.h"
#include "model/architectures/forward.h"
#include "model/stream_memory.h"
#include "tessera/linear.h"
#include "tessera/norm.h"

namespace tessera::model {
namespace {

struct Norm {
  Tensor weight, bias;  // [hidden]
};
struct Dense {
  Weight weight;  // [out, in]
  Tensor bias;    // [out], or none
};
struct Layer {
  Norm norm1, norm2;
  Dense qkv, output;  // [heads * 3 * dim, hidden], [hidden, hidden]
  Dense up, down;     // [intermediate, hidden], [hidden, intermediate]
};

class GptNeox final : public Model {
 public:
  GptNeox(const ModelConfig& config, DType dtype, WeightSource& weights);
  void forward(Context& ctx, const ForwardArgs& args) const override;
  std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                               std::int64_t logit_rows) const override {
    return count_workspace(ctx, *this, cache, logit_rows);
  }

 private:
  void run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                 std::int64_t rows) const;
  void norm(Context& ctx, const Norm& weights, const Tensor& x, const Tensor& out) const;

  Weight embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  Norm final_norm_;
  Weight head_;  // [vocab, hidden]
  Rope rope_;
  WeightStorage storage_;
};

GptNeox::GptNeox(const ModelConfig& config, DType dtype, WeightSource& weights) {
  config_ = config;
  dtype_ = dtype;
  const std::int64_t hidden = config.hidden;
  const auto read_norm = [&](const std::string& name) {
    return Norm{weights.vector(name + ".weight", hidden), weights.vector(name + ".bias", hidden)};
  };
  const auto read_dense = [&](const std::string& name, std::int64_t out, std::int64_t in,
                              bool bias) {
    const Weight weight = weights.linear(name, out, in);
    return Dense{weight, bias ? weights.vector(name + ".bias", out) : Tensor()};
  };

  // The head's name in files of before and after transformers 5.
  const std::string head = weights.has_module("lm_head") ? "lm_head" : "embed_out";
  const bool tied = config.tied_head && weights.shares_table("gpt_neox.embed_in", head);
  // Of a tied pair a file may keep either.
  const std::string table =
      tied && !weights.has_module("gpt_neox.embed_in") ? head : "gpt_neox.embed_in";
  embedding_ = weights.table(table, tied ? head : table, config.vocab, hidden);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string at = "gpt_neox.layers." + std::to_string(i);
    Layer layer;
    layer.norm1 = read_norm(at + ".input_layernorm");
    layer.qkv = read_dense(at + ".attention.query_key_value", 3 * hidden, hidden, config.qkv_bias);
    layer.output = read_dense(at + ".attention.dense", hidden, hidden, config.output_bias);
    layer.norm2 = read_norm(at + ".post_attention_layernorm");
    layer.up = read_dense(at + ".mlp.dense_h_to_4h", config.intermediate, hidden, config.mlp_bias);
    layer.down =
        read_dense(at + ".mlp.dense_4h_to_h", hidden, config.intermediate, config.mlp_bias);
    layers_.push_back(layer);
  }
  final_norm_ = read_norm("gpt_neox.final_layer_norm");
  head_ = tied ? weights.tied_head(table, head, embedding_)
               : weights.linear(head, config.vocab, hidden);
  rope_ = {.inv_freq = weights.constants(rope_frequencies(config.rope))};

  weights.finish();
  linear_layers_ = weights.take_layers();
  weight_bytes_ = weights.bytes();
  notes_ = weights.take_notes();
  storage_ = weights.take_storage();
}

void GptNeox::norm(Context& ctx, const Norm& weights, const Tensor& x, const Tensor& out) const {
  layer_norm(ctx, {.x = x,
                   .weight = weights.weight,
                   .bias = weights.bias,
                   .eps = static_cast<float>(config_.norm_eps),
                   .out = out});
}

void GptNeox::forward(Context& ctx, const ForwardArgs& args) const {
  run_pass(
      ctx, *this, args,
      {.embedding = embedding_,
       .head = head_,
       .run_layer = [&](std::int64_t layer, const Tensor& x,
                        std::int64_t rows) { run_layer(ctx, args, layer, x, rows); },
       .final_norm = [&](const Tensor& x, const Tensor& out) { norm(ctx, final_norm_, x, out); }});
}

// x [tokens, hidden] becomes the layer's output, in its last `rows` rows.
void GptNeox::run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                        std::int64_t rows) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t tokens = x.size(0), heads = config_.heads, dim = config_.head_dim;
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(dtype_, {tokens, config_.hidden});
  const Tensor qkv = frame.take(dtype_, {tokens, heads, 3, dim});

  norm(ctx, layer.norm1, x, normed);
  linear(ctx, {.x = normed,
               .weight = layer.qkv.weight,
               .bias = layer.qkv.bias,
               .out = qkv.view({tokens, 3 * config_.hidden})});
  const Tensor q = qkv.select(2, 0), k = qkv.select(2, 1), v = qkv.select(2, 2);

  turn_and_append(ctx, args, {.layer = index, .q = q, .k = k, .v = v, .rope = rope_});
  if (rows == 0) return;

  const Tensor mixed = frame.take(dtype_, {rows, heads, dim});
  cached_attention(
      ctx, args,
      {.q = last_rows(q, rows), .out = mixed, .layer = index, .window = 0, .rope = rope_});

  const Tensor out = last_rows(x, rows), second = last_rows(normed, rows);
  const Tensor attended = frame.take(dtype_, {rows, config_.hidden});
  const Tensor inner = frame.take(dtype_, {rows, config_.intermediate});
  linear(ctx, {.x = mixed.view({rows, config_.hidden}),
               .weight = layer.output.weight,
               .bias = layer.output.bias,
               .residual = out,
               .out = attended});
  norm(ctx, layer.norm2, config_.parallel_residual ? out : attended, second);
  linear(ctx, {.x = second,
               .weight = layer.up.weight,
               .bias = layer.up.bias,
               .activation = config_.activation,
               .out = inner});
  linear(ctx, {.x = inner,
               .weight = layer.down.weight,
               .bias = layer.down.bias,
               .residual = attended,
               .out = out});
}

}  // namespace

std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, DType dtype,
                                     WeightSource& weights) {
  return std::make_unique<GptNeox>(config, dtype, weights);
}

}  // namespace tessera::model
