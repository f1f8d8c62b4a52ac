// Llama, and its relatives that differ in a few lines: Mistral (sliding window), Qwen2 (bias on
// query, key and value), Qwen3 (each head of query and key is normed). What they read of
// config.json, their tensors and their layer.
//
//   y = x + attention(norm1 x);  y + down(act(gate n) * up n), n = norm2 y
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// 0 key/value heads: as many as query heads. 0 head_dim: hidden / heads.
struct HeadDefaults {
  std::int64_t kv_heads, head_dim;
};

void read_heads(const JsonView& json, const HeadDefaults& defaults, ModelConfig& config) {
  const auto kv_heads = json.optional_integer("num_key_value_heads", 1, kMaxHeads);
  // As in transformers, a key that is null differs from a missing key.
  const bool use_default = json.lacks("num_key_value_heads") && defaults.kv_heads > 0;
  config.kv_heads = kv_heads.value_or(use_default ? defaults.kv_heads : config.heads);
  if (config.heads % config.kv_heads != 0) {
    fail(ErrorCode::file, "{}: {} key/value heads do not divide {} query heads", json.where(),
         config.kv_heads, config.heads);
  }
  const auto head_dim = json.optional_integer("head_dim", 1, kMaxHeadDim);
  config.head_dim = head_dim                ? *head_dim
                    : defaults.head_dim > 0 ? defaults.head_dim
                                            : width_per_head(json, config);
}

void read_whole_head_rope(const JsonView& json, ModelConfig& config) {
  const double share = read_rotary_share(json, {"partial_rotary_factor"}, 1.0);
  if (share != 1.0) {
    fail(ErrorCode::file,
         "{}: partial_rotary_factor is {}, but {} rotates whole heads; leave it out", json.where(),
         share, config.architecture);
  }
  config.rope = read_rope(json, config, {"rope_theta"}, share);
}

constexpr std::int64_t kDefaultWindow = 4096;  // mistral, qwen2 and qwen3

void read_attention_bias(const JsonView& json, ModelConfig& config) {
  config.qkv_bias = config.output_bias = json.optional_boolean("attention_bias").value_or(false);
}

// The first max_window_layers layers see everything.
void read_qwen_windows(const JsonView& json, ModelConfig& config) {
  constexpr std::int64_t kDefaultFullLayers = 28;
  const std::int64_t window = read_sliding_window(json, kDefaultWindow);
  const bool on = json.optional_boolean("use_sliding_window").value_or(false);
  read_windows(
      json,
      {.window = on ? window : 0,
       .full_layers =
           json.optional_integer("max_window_layers", 0, kMaxLayers).value_or(kDefaultFullLayers),
       .mixed = true,
       .from = "sliding window (use_sliding_window, sliding_window)"},
      config);
}

void read_llama(const JsonView& json, ModelConfig& config) {
  read_heads(json, {.kv_heads = 0, .head_dim = 0}, config);
  read_attention_bias(json, config);
  config.mlp_bias = json.optional_boolean("mlp_bias").value_or(false);
  read_windows(json, {}, config);
  read_whole_head_rope(json, config);
}

void read_mistral(const JsonView& json, ModelConfig& config) {
  read_heads(json, {.kv_heads = 8, .head_dim = 0}, config);
  read_windows(json, {.window = read_sliding_window(json, kDefaultWindow)}, config);
  read_whole_head_rope(json, config);
}

void read_qwen2(const JsonView& json, ModelConfig& config) {
  read_heads(json, {.kv_heads = 32, .head_dim = 0}, config);
  config.qkv_bias = true;
  read_qwen_windows(json, config);
  read_whole_head_rope(json, config);
}

void read_qwen3(const JsonView& json, ModelConfig& config) {
  read_heads(json, {.kv_heads = 32, .head_dim = 128}, config);
  read_attention_bias(json, config);
  config.qk_norm = true;
  read_qwen_windows(json, config);
  read_whole_head_rope(json, config);
}

// ---- tensors ------------------------------------------------------------------------------------

constexpr std::string_view kLlamaHeads[] = {"lm_head"};
constexpr std::string_view kLlamaQkv[] = {".self_attn.q_proj", ".self_attn.k_proj",
                                          ".self_attn.v_proj"};
constexpr ModuleNames kLlamaModules{.table = "model.embed_tokens",
                                    .heads = kLlamaHeads,
                                    .layers = "model.layers.",
                                    .norm1 = ".input_layernorm",
                                    .norm2 = ".post_attention_layernorm",
                                    .qkv = kLlamaQkv,
                                    .q_norm = ".self_attn.q_norm",
                                    .k_norm = ".self_attn.k_norm",
                                    .output = ".self_attn.o_proj",
                                    .gate = ".mlp.gate_proj",
                                    .up = ".mlp.up_proj",
                                    .down = ".mlp.down_proj",
                                    .final_norm = "model.norm"};

class Llama final : public LayeredModel {
 public:
  Llama(const ModelConfig& config, DType dtype, WeightSource& weights);

 private:
  void run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                 const FinishedRows& rows, const Tensor& out) const override;
  void run_final_norm(Context& ctx, const CacheStep& step, const Tensor& x,
                      const Tensor& out) const override {
    norm(ctx, step, final_norm_, x, out);
  }
  void norm(Context& ctx, const CacheStep& step, const Tensor& weight, const Tensor& x,
            const Tensor& out) const;

  struct Layer {
    Tensor norm1, norm2;    // [hidden]
    Dense q, k, v, output;  // [heads * dim, hidden], twice [kv_heads * dim, hidden], [hidden, ...]
    Tensor q_norm, k_norm;  // [dim]: qwen3
    Dense gate, up, down;   // twice [intermediate, hidden], [hidden, intermediate]
  };

  std::vector<Layer> layers_;
  Tensor final_norm_;  // [hidden]
};

Llama::Llama(const ModelConfig& config, DType dtype, WeightSource& weights)
    : LayeredModel(config, dtype, weights) {
  decode_kind_ = DecodeLayerKind::serial;
  const std::int64_t hidden = config.hidden, intermediate = config.intermediate;
  const std::int64_t q_rows = config.heads * config.head_dim;
  const std::int64_t kv_rows = config.kv_heads * config.head_dim;

  // Rows and columns of this process's part of the model.
  const WeightSlice by_head{.rows = Shard::times(shard_.heads, config.head_dim)};
  const WeightSlice by_kv_head{.rows = Shard::times(shard_.kv_heads, config.head_dim)};
  const WeightSlice by_inner{.rows = shard_.inner};
  const bool first = shard_.is_first();  // it adds what is added once

  TableAndHead ends(weights, kLlamaModules, config, shard_.vocab);
  embedding_ = ends.read_table();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const auto at = [&](std::string_view module) { return kLlamaModules.in_layer(i, module); };
    const auto read_norm = [&](std::string_view module, std::int64_t n) {
      return weights.vector(at(module) + ".weight", n);
    };
    Layer layer;
    layer.norm1 = read_norm(kLlamaModules.norm1, hidden);
    layer.q = read_dense(weights, at(kLlamaQkv[0]), q_rows, hidden, config.qkv_bias, by_head);
    layer.k = read_dense(weights, at(kLlamaQkv[1]), kv_rows, hidden, config.qkv_bias, by_kv_head);
    layer.v = read_dense(weights, at(kLlamaQkv[2]), kv_rows, hidden, config.qkv_bias, by_kv_head);
    if (config.qk_norm) {
      layer.q_norm = read_norm(kLlamaModules.q_norm, config.head_dim);
      layer.k_norm = read_norm(kLlamaModules.k_norm, config.head_dim);
    }
    layer.output = read_dense(weights, at(kLlamaModules.output), hidden, q_rows, config.output_bias,
                              {.columns = by_head.rows}, first);
    layer.norm2 = read_norm(kLlamaModules.norm2, hidden);
    layer.gate = read_dense(weights, at(kLlamaModules.gate), intermediate, hidden, config.mlp_bias,
                            by_inner);
    layer.up =
        read_dense(weights, at(kLlamaModules.up), intermediate, hidden, config.mlp_bias, by_inner);
    layer.down = read_dense(weights, at(kLlamaModules.down), hidden, intermediate, config.mlp_bias,
                            {.columns = shard_.inner}, first);
    layers_.push_back(layer);
    // The kernel of decode_layers() does not norm the heads of query and key.
    if (!config.qk_norm && may_decode_at_once(weights)) {
      const auto product = [](const Dense& dense) {
        return DecodeLayer::Product{dense.weight, dense.bias};
      };
      decode_layers_.push_back({.norm1 = {.weight = layer.norm1},
                                .norm2 = {.weight = layer.norm2},
                                .q = product(layer.q),
                                .k = product(layer.k),
                                .v = product(layer.v),
                                .gate = product(layer.gate),
                                .up = product(layer.up),
                                .down = product(layer.down),
                                .output = product(layer.output)});
    }
  }
  final_norm_ = weights.vector(std::string(kLlamaModules.final_norm) + ".weight", hidden);
  decode_norm_.weight = final_norm_;
  head_ = ends.read_head(embedding_);
  finish_reading(weights);
}

void Llama::norm(Context& ctx, const CacheStep& step, const Tensor& weight, const Tensor& x,
                 const Tensor& out) const {
  rms_norm(ctx, {.x = x,
                 .weight = weight,
                 .eps = static_cast<float>(config_.norm_eps),
                 .out = out,
                 .fixed_rows = step.batch_invariant});
}

void Llama::run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                      const FinishedRows& rows, const Tensor& out) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t tokens = x.size(0), dim = config_.head_dim;
  const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads;
  Workspace::Frame frame(ctx.workspace());
  const Tensor normed = frame.take(dtype_, {tokens, config_.hidden});
  // Heads of query, key and value side by side.
  const Tensor qkv = frame.take(dtype_, {tokens, heads + 2 * kv_heads, dim});
  const Tensor q = qkv.slice(1, 0, heads), k = qkv.slice(1, heads, heads + kv_heads),
               v = qkv.slice(1, heads + kv_heads, heads + 2 * kv_heads);

  norm(ctx, *args.step, layer.norm1, x, normed);
  const Tensor products = qkv.view({tokens, (heads + 2 * kv_heads) * dim});
  const auto project = [&](const Dense& dense, std::int64_t from, std::int64_t count) {
    linear(ctx, {.x = normed,
                 .weight = dense.weight,
                 .bias = dense.bias,
                 .out = products.slice(1, from * dim, (from + count) * dim),
                 .fixed_rows = all_rows(*args.step).fixed});
  };
  project(layer.q, 0, heads);
  project(layer.k, heads, kv_heads);
  project(layer.v, heads + kv_heads, kv_heads);
  if (config_.qk_norm) {
    norm(ctx, *args.step, layer.q_norm, q, q);
    norm(ctx, *args.step, layer.k_norm, k, k);
  }

  const std::int64_t n = rows.count, window = config_.windows[static_cast<std::size_t>(index)];
  const Tensor mixed = n > 0 ? frame.take(dtype_, {n, heads, dim}) : Tensor();
  const RotateAndAppendArgs rotated{.layer = index, .q = q, .k = k, .v = v, .rope = rope_};
  if (!append_and_attend(ctx, args, rows, {.append = rotated, .window = window, .out = mixed})) {
    rotate_and_append(ctx, args, rotated);
    if (n == 0) return;
    const Tensor finished = take_rows(ctx, frame, rows, products);
    cached_attention(ctx, args,
                     {.groups = rows.groups,
                      .q = finished.view({n, heads + 2 * kv_heads, dim}).slice(1, 0, heads),
                      .out = mixed,
                      .layer = index,
                      .window = window,
                      .rope = rope_});
  }

  const Tensor second = normed.slice(0, 0, n);
  const Tensor inner = frame.take(dtype_, {n, config_.intermediate});
  linear(ctx, {.x = mixed.view({n, heads * dim}),
               .weight = layer.output.weight,
               .bias = layer.output.bias,
               .residual = shard_.is_first() ? out : Tensor(),
               .out = out,
               .fixed_rows = rows.fixed});
  shard_.add_up(ctx, out);
  norm(ctx, *args.step, layer.norm2, out, second);
  gated_linear(ctx, {.x = second,
                     .gate = layer.gate.weight,
                     .up = layer.up.weight,
                     .gate_bias = layer.gate.bias,
                     .up_bias = layer.up.bias,
                     .activation = config_.activation,
                     .out = inner,
                     .fixed_rows = rows.fixed});
  linear(ctx, {.x = inner,
               .weight = layer.down.weight,
               .bias = layer.down.bias,
               .residual = shard_.is_first() ? out : Tensor(),
               .out = out,
               .fixed_rows = rows.fixed});
  shard_.add_up(ctx, out);
}

std::unique_ptr<Model> make_llama(const ModelConfig& config, DType dtype, WeightSource& weights) {
  return std::make_unique<Llama>(config, dtype, weights);
}

// Residuals and activations have no ops of their own: they are part of linear's epilogue.
std::vector<StepCalls> llama_layer_calls(const ModelConfig& config) {
  return {{"rms_norm", config.qk_norm ? 4 : 2,
           config.qk_norm ? "before attention, of queries, of keys, before the MLP"
                          : "before attention, before the MLP"},
          {"linear", 5, "q, k, v, output + residual, down + residual"},
          {"gated_linear", 1, "gate, activation, up and their product"}};
}

// ---- the entries --------------------------------------------------------------------------------

// The keys that all four read, and some of their own.
template <typename... Own>
constexpr auto with_common_keys(Own... own) {
  return std::to_array<std::string_view>(
      {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rope_parameters",
       "partial_rotary_factor", "original_max_position_embeddings", "layer_types", own...});
}
constexpr auto kLlamaKeys = with_common_keys("attention_bias", "mlp_bias");
constexpr auto kMistralKeys = with_common_keys("sliding_window");
constexpr auto kQwen2Keys =
    with_common_keys("sliding_window", "use_sliding_window", "max_window_layers");
constexpr auto kQwen3Keys =
    with_common_keys("sliding_window", "use_sliding_window", "max_window_layers", "attention_bias");

constexpr Architecture entry(std::string_view name, std::string_view causal_lm,
                             const ConfigDefaults& defaults, std::span<const std::string_view> keys,
                             void (*read_options)(const JsonView&, ModelConfig&)) {
  return {.name = name,
          .causal_lm = causal_lm,
          .defaults = defaults,
          .keys = keys,
          .read_options = read_options,
          .make = make_llama,
          .norm = NormKind::rms_norm,
          .modules = kLlamaModules,
          .layer_calls = llama_layer_calls};
}

}  // namespace

extern const Architecture kLlama, kMistral, kQwen2, kQwen3;
constexpr Architecture kLlama =
    entry("llama", "LlamaForCausalLM", {.max_positions = 2048, .bos = 1, .eos = 2}, kLlamaKeys,
          read_llama);
constexpr Architecture kMistral =
    entry("mistral", "MistralForCausalLM", {.max_positions = 131072, .bos = 1, .eos = 2},
          kMistralKeys, read_mistral);
constexpr Architecture kQwen2 =
    entry("qwen2", "Qwen2ForCausalLM", {.max_positions = 32768}, kQwen2Keys, read_qwen2);
constexpr Architecture kQwen3 =
    entry("qwen3", "Qwen3ForCausalLM", {.max_positions = 32768}, kQwen3Keys, read_qwen3);

}  // namespace tessera::model
