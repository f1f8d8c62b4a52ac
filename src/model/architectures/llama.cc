// Llama, and its relatives that differ in a few lines: Mistral (sliding window), Qwen2 (bias on
// query, key and value), Qwen3 (each head of query and key is normed).
//
//   y = x + attention(norm1 x);  y + down(act(gate n) * up n), n = norm2 y
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

struct Dense {
  Weight weight;  // [out, in]
  Tensor bias;    // [out], or none
};
struct Layer {
  Tensor norm1, norm2;    // [hidden]
  Dense q, k, v, output;  // [heads * dim, hidden], twice [kv_heads * dim, hidden], [hidden, ...]
  Tensor q_norm, k_norm;  // [dim]: qwen3
  Dense gate, up, down;   // twice [intermediate, hidden], [hidden, intermediate]
};

class Llama final : public Model {
 public:
  Llama(const ModelConfig& config, DType dtype, WeightSource& weights);
  void forward(Context& ctx, const ForwardArgs& args) const override;
  std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                               std::int64_t logit_rows) const override {
    return count_workspace(ctx, *this, cache, logit_rows);
  }

 private:
  void run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                 std::int64_t rows) const;
  void norm(Context& ctx, const Tensor& weight, const Tensor& x, const Tensor& out) const;

  Weight embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  Tensor final_norm_;  // [hidden]
  Weight head_;        // [vocab, hidden]
  Rope rope_;
  WeightStorage storage_;
};

Llama::Llama(const ModelConfig& config, DType dtype, WeightSource& weights) {
  config_ = config;
  dtype_ = dtype;
  const std::int64_t hidden = config.hidden, intermediate = config.intermediate;
  const std::int64_t q_rows = config.heads * config.head_dim;
  const std::int64_t kv_rows = config.kv_heads * config.head_dim;
  const auto read_dense = [&](const std::string& name, std::int64_t out, std::int64_t in,
                              bool bias) {
    const Weight weight = weights.linear(name, out, in);
    return Dense{weight, bias ? weights.vector(name + ".bias", out) : Tensor()};
  };

  const bool tied = config.tied_head && weights.shares_table("model.embed_tokens", "lm_head");
  // Of a tied pair a file may keep either.
  const std::string table =
      tied && !weights.has_module("model.embed_tokens") ? "lm_head" : "model.embed_tokens";
  embedding_ = weights.table(table, tied ? "lm_head" : table, config.vocab, hidden);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i);
    Layer layer;
    layer.norm1 = weights.vector(at + ".input_layernorm.weight", hidden);
    layer.q = read_dense(at + ".self_attn.q_proj", q_rows, hidden, config.qkv_bias);
    layer.k = read_dense(at + ".self_attn.k_proj", kv_rows, hidden, config.qkv_bias);
    layer.v = read_dense(at + ".self_attn.v_proj", kv_rows, hidden, config.qkv_bias);
    if (config.qk_norm) {
      layer.q_norm = weights.vector(at + ".self_attn.q_norm.weight", config.head_dim);
      layer.k_norm = weights.vector(at + ".self_attn.k_norm.weight", config.head_dim);
    }
    layer.output = read_dense(at + ".self_attn.o_proj", hidden, q_rows, config.output_bias);
    layer.norm2 = weights.vector(at + ".post_attention_layernorm.weight", hidden);
    layer.gate = read_dense(at + ".mlp.gate_proj", intermediate, hidden, config.mlp_bias);
    layer.up = read_dense(at + ".mlp.up_proj", intermediate, hidden, config.mlp_bias);
    layer.down = read_dense(at + ".mlp.down_proj", hidden, intermediate, config.mlp_bias);
    layers_.push_back(layer);
  }
  final_norm_ = weights.vector("model.norm.weight", hidden);
  head_ = tied ? weights.tied_head(table, "lm_head", embedding_)
               : weights.linear("lm_head", config.vocab, hidden);
  rope_ = {.inv_freq = weights.constants(rope_frequencies(config.rope))};

  weights.finish();
  linear_layers_ = weights.take_layers();
  weight_bytes_ = weights.bytes();
  notes_ = weights.take_notes();
  storage_ = weights.take_storage();
}

void Llama::norm(Context& ctx, const Tensor& weight, const Tensor& x, const Tensor& out) const {
  rms_norm(ctx,
           {.x = x, .weight = weight, .eps = static_cast<float>(config_.norm_eps), .out = out});
}

void Llama::forward(Context& ctx, const ForwardArgs& args) const {
  run_pass(
      ctx, *this, args,
      {.embedding = embedding_,
       .head = head_,
       .run_layer = [&](std::int64_t layer, const Tensor& x,
                        std::int64_t rows) { run_layer(ctx, args, layer, x, rows); },
       .final_norm = [&](const Tensor& x, const Tensor& out) { norm(ctx, final_norm_, x, out); }});
}

// x [tokens, hidden] becomes the layer's output, in its last `rows` rows.
void Llama::run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                      std::int64_t rows) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t tokens = x.size(0), dim = config_.head_dim;
  const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads;
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(dtype_, {tokens, config_.hidden});
  // Heads of query, key and value side by side.
  const Tensor qkv = frame.take(dtype_, {tokens, heads + 2 * kv_heads, dim});
  const Tensor q = qkv.slice(1, 0, heads), k = qkv.slice(1, heads, heads + kv_heads),
               v = qkv.slice(1, heads + kv_heads, heads + 2 * kv_heads);

  norm(ctx, layer.norm1, x, normed);
  const Tensor products = qkv.view({tokens, (heads + 2 * kv_heads) * dim});
  const auto project = [&](const Dense& dense, std::int64_t from, std::int64_t count) {
    linear(ctx, {.x = normed,
                 .weight = dense.weight,
                 .bias = dense.bias,
                 .out = products.slice(1, from * dim, (from + count) * dim)});
  };
  project(layer.q, 0, heads);
  project(layer.k, heads, kv_heads);
  project(layer.v, heads + kv_heads, kv_heads);
  if (config_.qk_norm) {
    norm(ctx, layer.q_norm, q, q);
    norm(ctx, layer.k_norm, k, k);
  }

  turn_and_append(ctx, args, {.layer = index, .q = q, .k = k, .v = v, .rope = rope_});
  if (rows == 0) return;

  const Tensor mixed = frame.take(dtype_, {rows, heads, dim});
  cached_attention(ctx, args,
                   {.q = last_rows(q, rows),
                    .out = mixed,
                    .layer = index,
                    .window = config_.windows[static_cast<std::size_t>(index)],
                    .rope = rope_});

  const Tensor out = last_rows(x, rows), second = last_rows(normed, rows);
  const Tensor inner = frame.take(dtype_, {rows, config_.intermediate});
  linear(ctx, {.x = mixed.view({rows, heads * dim}),
               .weight = layer.output.weight,
               .bias = layer.output.bias,
               .residual = out,
               .out = out});
  norm(ctx, layer.norm2, out, second);
  gated_linear(ctx, {.x = second,
                     .gate = layer.gate.weight,
                     .up = layer.up.weight,
                     .gate_bias = layer.gate.bias,
                     .up_bias = layer.up.bias,
                     .activation = config_.activation,
                     .out = inner});
  linear(ctx, {.x = inner,
               .weight = layer.down.weight,
               .bias = layer.down.bias,
               .residual = out,
               .out = out});
}

}  // namespace

std::unique_ptr<Model> make_llama(const ModelConfig& config, DType dtype, WeightSource& weights) {
  return std::make_unique<Llama>(config, dtype, weights);
}

}  // namespace tessera::model
