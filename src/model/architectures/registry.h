// The architectures. Each has one file in this folder and one entry in the table of registry.cc;
// nothing else in the library names one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/weight_source.h"
#include "tessera/model.h"
#include "tessera/modules.h"

namespace tessera::model {

// What transformers assumes if config.json lacks a key.
struct ConfigDefaults {
  std::int64_t max_positions = 2048;
  const char* eps_key = "rms_norm_eps";
  double eps = 1e-6;
  Activation activation = Activation::silu;
  std::int64_t bos = -1, eos = -1;  // -1: none
};

// What a checkpoint calls the modules of a model. The float64 reference (src/reference/model.h)
// computes from these names and the config alone. Names inside a layer follow the layer's index.
struct ModuleNames {
  std::string_view table;                   // the embedding
  std::span<const std::string_view> heads;  // the first one in the file counts, else the last
  std::string_view layers;                  // "model.layers."
  std::string_view norm1, norm2;  // ".input_layernorm", before attention and before the MLP
  // Query, key and value: three modules, or one with [heads, 3, dim] rows.
  std::span<const std::string_view> qkv;
  std::string_view q_norm, k_norm;  // with ModelConfig::qk_norm
  std::string_view output;
  std::string_view gate;  // empty: the MLP has no gate
  std::string_view up, down;
  std::string_view final_norm;

  // "model.layers.3.mlp.up_proj"
  std::string in_layer(std::int64_t layer, std::string_view module) const {
    return std::string(layers) + std::to_string(layer) + std::string(module);
  }
};

// The steps of one sequence that differ in what they call. All ask for the logits of the last
// token.
enum class StepKind : std::uint8_t {
  prompt,        // tokens of a prompt: keys and values are stored, then attention reads them
  short_prompt,  // few tokens, in one op; but the last layer computes only one row to the end
  token,         // one token
  fused_layers,  // the same, all layers and the final norm in one call of decode_layers()
  fused_token    // the same, and the embedding too
};
// The results of Model::fuses_layers() for the step, and of Model::fuses_embedding().
struct StepFusion {
  bool layers = false, embedding = false;
};
StepKind step_kind(std::int64_t tokens, const StepFusion& fusion);

// What a step calls of one op. `tessera verify` and `tessera profile` compare it with the trace.
struct StepCalls {
  std::string op;
  std::int64_t calls = 0;
  std::string what{};
};

struct Architecture {
  std::string_view name;       // model_type of config.json
  std::string_view causal_lm;  // its entry of `architectures` in config.json
  ConfigDefaults defaults;
  // The keys of config.json that read_options() reads, beside those that every architecture has. Of
  // the options that change what is computed (config.cc lists them), those that are not here are
  // refused; other keys that are not here are not looked at, as in transformers.
  std::span<const std::string_view> keys;
  void (*read_options)(const JsonView& json, ModelConfig& config);
  std::unique_ptr<Model> (*make)(const ModelConfig& config, DType dtype, WeightSource& weights);
  NormKind norm;
  ModuleNames modules;
  // What each layer calls beside attention over the cache, which is the same everywhere.
  std::vector<StepCalls> (*layer_calls)(const ModelConfig& config);

  // What a step of this kind has to call: embedding, layers, norm, head.
  std::vector<StepCalls> promised_calls(const ModelConfig& config, StepKind kind) const;
  bool reads(std::string_view key) const;
};

std::span<const Architecture* const> architectures();
// "gpt_neox (GPTNeoXForCausalLM), llama (LlamaForCausalLM), ..."
std::string supported_architectures();

// By `architectures`, which shows what the tensors are for, and by model_type.
const Architecture& find_architecture(const JsonView& config);
// By the name in the config.
const Architecture& find_architecture(const ModelConfig& config);

// The model that the config asks for.
std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, WeightSource& weights);

}  // namespace tessera::model
