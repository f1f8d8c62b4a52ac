#include "model/architectures/config.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/as_error.h"
#include "core/fail.h"
#include "model/architectures/config_parts.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/quote.h"

namespace tessera {
namespace model {
namespace {

// Options that change what is computed, in architectures that have them. Null, false and 0 turn
// them off.
constexpr const char* kOptions[] = {"attn_logit_softcapping",
                                    "final_logit_softcapping",
                                    "query_pre_attn_scalar",
                                    "attention_multiplier",
                                    "residual_multiplier",
                                    "embedding_multiplier",
                                    "logits_scaling",
                                    "num_local_experts",
                                    "num_experts",
                                    "n_routed_experts",
                                    "clip_qkv",
                                    "use_qk_norm",
                                    "attention_chunk_size",
                                    "no_rope_layers",
                                    "alibi",
                                    "is_encoder_decoder",
                                    "add_cross_attention",
                                    "sliding_window"};

// " (mistral, qwen2, qwen3 have it)", or nothing.
std::string who_reads(std::string_view key) {
  std::string list;
  for (const Architecture* entry : architectures()) {
    if (!entry->reads(key)) continue;
    list.append(list.empty() ? " (" : ", ").append(entry->name);
  }
  return list.empty() ? list : list + " have it)";
}

void refuse_other_options(const JsonView& json, const Architecture& architecture) {
  for (const char* key : kOptions) {
    if (architecture.reads(key)) continue;
    const Json* value = json.find(key);
    if (!value || (value->is_boolean() && !value->get<bool>()) ||
        (value->is_number() && value->get<double>() == 0)) {
      continue;
    }
    fail(ErrorCode::file, "{}: {} is {}, an option that is not supported for {}{}; leave it out",
         json.where(), key,
         value->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40),
         architecture.name, who_reads(key));
  }
}

Activation activation_of(const JsonView& json, Activation otherwise) {
  const std::optional<std::string> given = json.optional_string("hidden_act");
  if (!given) return otherwise;
  constexpr std::pair<const char*, Activation> kNames[] = {
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_python_tanh", Activation::gelu_tanh},
      {"gelu_accurate", Activation::gelu_tanh},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"relu", Activation::relu},
      {"linear", Activation::none},
  };
  std::string list;
  for (const auto& [known, activation] : kNames) {
    if (*given == known) return activation;
    if (!list.empty()) list += ", ";
    list += known;
  }
  fail(ErrorCode::file, "{}: hidden_act {} is not supported; supported: {}", json.where(),
       in_quotes(*given), list);
}

// ---- sizes --------------------------------------------------------------------------------------

void read_sizes(const JsonView& json, const ConfigDefaults& defaults, ModelConfig& config) {
  config.layers = json.integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = json.integer("hidden_size", 1, kMaxWidth);
  config.intermediate = json.integer("intermediate_size", 1, kMaxWidth);
  config.vocab = json.integer("vocab_size", 1, kMaxTokens);
  config.heads = json.integer("num_attention_heads", 1, kMaxHeads);
  config.max_positions = json.optional_integer("max_position_embeddings", 1, kMaxTokens)
                             .value_or(defaults.max_positions);
  config.norm_eps = json.optional_number(defaults.eps_key).value_or(defaults.eps);
  if (!(config.norm_eps >= 0 && config.norm_eps < 1)) {
    fail(ErrorCode::file, "{}: {} is {}; a number from 0 to below 1 is accepted", json.where(),
         defaults.eps_key, config.norm_eps);
  }
}

// ---- tokens, dtype ------------------------------------------------------------------------------

// A number or a list of them.
std::vector<std::int64_t> token_ids(const JsonView& json, const char* key) {
  const Json* value = json.find(key);
  if (!value) return {};
  std::vector<std::int64_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > kMaxTokens) {
      fail(ErrorCode::file, "{}: {} must be a token id or a list of them", json.where(), key);
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

void read_tokens(const JsonView& json, ModelConfig& config) {
  const std::vector<std::int64_t> bos = token_ids(json, "bos_token_id");
  if (!bos.empty()) config.bos = bos.front();
  std::vector<std::int64_t> eos = token_ids(json, "eos_token_id");
  if (!eos.empty()) config.eos = std::move(eos);
}

DType stored_dtype(const JsonView& json) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    std::string given = json.optional_string(key).value_or("");
    if (given.starts_with("torch.")) given.erase(0, 6);
    if (given == "float32") return DType::f32;
    if (given == "float16") return DType::f16;
    if (given == "bfloat16") return DType::bf16;
    if (given.empty() || given == "auto") continue;
    fail(ErrorCode::file, "{}: {} {} is not supported; supported: float32, float16, bfloat16",
         json.where(), key, in_quotes(given));
  }
  return DType::f32;
}

}  // namespace

std::int64_t width_per_head(const JsonView& json, const ModelConfig& config) {
  if (config.hidden % config.heads == 0) return config.hidden / config.heads;
  fail(ErrorCode::file, "{}: {} heads do not divide a hidden_size of {}, and head_dim is not given",
       json.where(), config.heads, config.hidden);
}

ModelConfig read_config_as(const Architecture& architecture, const JsonView& json) {
  const ConfigDefaults& defaults = architecture.defaults;
  ModelConfig config;
  config.architecture = architecture.name;
  refuse_other_options(json, architecture);
  read_sizes(json, defaults, config);
  config.kv_heads = config.heads;
  config.activation = activation_of(json, defaults.activation);
  config.tied_head = json.optional_boolean("tie_word_embeddings").value_or(false);
  architecture.read_options(json, config);
  config.stored_dtype = stored_dtype(json);
  if (json.lacks("bos_token_id")) config.bos = defaults.bos;
  if (json.lacks("eos_token_id") && defaults.eos >= 0) config.eos = {defaults.eos};
  read_tokens(json, config);
  return config;
}

ModelConfig model_config_of(const Json& parsed, const std::string& where) {
  const JsonView json(parsed, where);
  return read_config_as(find_architecture(json), json);
}

ModelConfig parse_model_config(std::string_view json, const std::string& where) {
  return model_config_of(parse_json(json, where), where);
}

void apply_generation_config(const Json& json, const std::string& where, ModelConfig& config) {
  read_tokens(JsonView(json, where), config);
}

}  // namespace model

ModelConfig read_model_config(const std::filesystem::path& directory) {
  return as_error(fmt::format("reading {}", directory.string()), [&] {
    const std::filesystem::path path = directory / "config.json";
    ModelConfig config =
        model::model_config_of(model::read_json_file(path, model::kMaxConfigBytes), path.string());
    const std::filesystem::path generation = directory / "generation_config.json";
    if (model::is_named(generation)) {
      model::apply_generation_config(model::read_json_file(generation, model::kMaxConfigBytes),
                                     generation.string(), config);
    }
    return config;
  });
}

}  // namespace tessera
