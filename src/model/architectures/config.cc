#include "model/architectures/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/checkpoint/quote.h"

namespace tessera {

std::string_view name(Architecture architecture) {
  switch (architecture) {
    case Architecture::gpt_neox:
      return "gpt_neox";
    case Architecture::llama:
      return "llama";
    case Architecture::mistral:
      return "mistral";
    case Architecture::qwen2:
      return "qwen2";
    case Architecture::qwen3:
      return "qwen3";
  }
  return "";
}

namespace model {
namespace {

// Larger than any model; small enough that products of two fit easily.
constexpr std::int64_t kMaxLayers = 1 << 16, kMaxWidth = 1 << 24, kMaxHeads = 1 << 16,
                       kMaxHeadDim = 1 << 16, kMaxTokens = INT32_MAX;

// What transformers assumes where a key is missing. 0 key/value heads: as many as query heads. 0
// head_dim: hidden / heads.
struct Family {
  Architecture architecture;
  const char* causal_lm;  // the entry of `architectures`
  std::int64_t kv_heads, head_dim, max_positions;
  std::int64_t bos, eos;
};
constexpr Family kFamilies[] = {
    {Architecture::gpt_neox, "GPTNeoXForCausalLM", 0, 0, 2048, 0, 2},
    {Architecture::llama, "LlamaForCausalLM", 0, 0, 2048, 1, 2},
    {Architecture::mistral, "MistralForCausalLM", 8, 0, 131072, 1, 2},
    {Architecture::qwen2, "Qwen2ForCausalLM", 32, 0, 32768, -1, -1},
    {Architecture::qwen3, "Qwen3ForCausalLM", 32, 128, 32768, -1, -1},
};

std::string supported_architectures() {
  std::string list;
  for (const Family& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += fmt::format("{} ({})", name(family.architecture), family.causal_lm);
  }
  return list;
}

// By `architectures`, which says what the tensors are for, and by model_type.
const Family& family_of(const JsonView& json) {
  const std::vector<std::string> classes = json.strings("architectures");
  const std::optional<std::string> model_type = json.optional_string("model_type");
  if (classes.empty() && !model_type) {
    fail(ErrorCode::file, "{}: there is neither model_type nor architectures; supported: {}",
         json.where(), supported_architectures());
  }
  for (const Family& family : kFamilies) {
    const bool class_fits = classes.empty() || std::find(classes.begin(), classes.end(),
                                                         family.causal_lm) != classes.end();
    const bool type_fits = !model_type || *model_type == name(family.architecture);
    if (class_fits && type_fits) return family;
  }
  fail(ErrorCode::file, "{}: architecture {} (model_type {}) is not supported; supported: {}",
       json.where(), classes.empty() ? "not given" : in_quotes(classes.front()),
       model_type ? in_quotes(*model_type) : "not given", supported_architectures());
}

// Options of other families that change what is computed. Null, false and 0 leave them off.
void refuse_other_options(const JsonView& json, Architecture architecture) {
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar",
        "attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling",
        "num_local_experts", "num_experts", "n_routed_experts", "clip_qkv", "use_qk_norm",
        "attention_chunk_size", "no_rope_layers", "alibi", "is_encoder_decoder",
        "add_cross_attention"}) {
    const Json* value = json.find(key);
    if (!value || (value->is_boolean() && !value->get<bool>()) ||
        (value->is_number() && value->get<double>() == 0)) {
      continue;
    }
    fail(ErrorCode::file, "{}: {} is {}, an option that is not supported for {}; leave it out",
         json.where(), key,
         value->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40),
         name(architecture));
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

// As transformers has it: a key that is there with null means something else than no key.
bool is_missing(const JsonView& json, const char* key) { return !json.json().contains(key); }

void read_heads(const JsonView& json, const Family& family, ModelConfig& config) {
  config.heads = json.integer("num_attention_heads", 1, kMaxHeads);
  const bool neox = config.architecture == Architecture::gpt_neox;
  const auto kv_heads =
      neox ? std::nullopt : json.optional_integer("num_key_value_heads", 1, kMaxHeads);
  const bool by_family =
      !kv_heads && family.kv_heads > 0 && is_missing(json, "num_key_value_heads");
  config.kv_heads = kv_heads.value_or(by_family ? family.kv_heads : config.heads);
  if (config.heads % config.kv_heads != 0) {
    fail(ErrorCode::file, "{}: {} key/value heads do not divide {} query heads", json.where(),
         config.kv_heads, config.heads);
  }

  const auto head_dim = json.optional_integer("head_dim", 1, kMaxHeadDim);
  const bool divides = config.hidden % config.heads == 0;
  if (head_dim && !neox) {
    config.head_dim = *head_dim;
  } else if (family.head_dim > 0) {
    config.head_dim = family.head_dim;
  } else if (divides) {
    config.head_dim = config.hidden / config.heads;
  } else {
    fail(ErrorCode::file,
         "{}: {} heads do not divide a hidden_size of {}, and head_dim is not given", json.where(),
         config.heads, config.hidden);
  }
  if (head_dim && *head_dim != config.head_dim) {
    fail(ErrorCode::file, "{}: head_dim is {}; in {} it is hidden_size / num_attention_heads = {}",
         json.where(), *head_dim, name(config.architecture), config.head_dim);
  }
}

void read_sizes(const JsonView& json, const Family& family, ModelConfig& config) {
  config.layers = json.integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = json.integer("hidden_size", 1, kMaxWidth);
  config.intermediate = json.integer("intermediate_size", 1, kMaxWidth);
  config.vocab = json.integer("vocab_size", 1, kMaxTokens);
  config.max_positions = json.optional_integer("max_position_embeddings", 1, kMaxTokens)
                             .value_or(family.max_positions);
  read_heads(json, family, config);

  const bool neox = config.architecture == Architecture::gpt_neox;
  const char* eps_key = neox ? "layer_norm_eps" : "rms_norm_eps";
  config.norm_eps = json.optional_number(eps_key).value_or(neox ? 1e-5 : 1e-6);
  if (!(config.norm_eps >= 0 && config.norm_eps < 1)) {
    fail(ErrorCode::file, "{}: {} is {}; a number from 0 to below 1 is accepted", json.where(),
         eps_key, config.norm_eps);
  }
}

// ---- biases, windows ----------------------------------------------------------------------------

void read_biases(const JsonView& json, ModelConfig& config) {
  const auto flag = [&](const char* key, bool otherwise) {
    return json.optional_boolean(key).value_or(otherwise);
  };
  switch (config.architecture) {
    case Architecture::gpt_neox:
      config.qkv_bias = config.output_bias = flag("attention_bias", true);
      config.mlp_bias = true;
      break;
    case Architecture::llama:
      config.qkv_bias = config.output_bias = flag("attention_bias", false);
      config.mlp_bias = flag("mlp_bias", false);
      break;
    case Architecture::mistral:
      break;
    case Architecture::qwen2:
      config.qkv_bias = true;
      break;
    case Architecture::qwen3:
      config.qkv_bias = config.output_bias = flag("attention_bias", false);
      config.qk_norm = true;
      break;
  }
}

// The size of the sliding window: how many keys a query sees, its own included; 0: none.
std::int64_t window_of(const JsonView& json, Architecture architecture) {
  const auto given = json.optional_integer("sliding_window", 1, kMaxTokens);
  constexpr std::int64_t kDefaultWindow = 4096;  // mistral, qwen2 and qwen3
  const std::int64_t window =
      given.value_or(is_missing(json, "sliding_window") ? kDefaultWindow : 0);
  switch (architecture) {
    case Architecture::mistral:
      return window;
    case Architecture::qwen2:
    case Architecture::qwen3:
      return json.optional_boolean("use_sliding_window").value_or(false) ? window : 0;
    default:
      if (!given) return 0;
      fail(ErrorCode::file, "{}: sliding_window is {}, but {} has no sliding window; leave it out",
           json.where(), *given, name(architecture));
  }
}

void read_windows(const JsonView& json, ModelConfig& config) {
  const std::int64_t window = window_of(json, config.architecture);
  const bool qwen =
      config.architecture == Architecture::qwen2 || config.architecture == Architecture::qwen3;
  constexpr std::int64_t kDefaultFullLayers = 28;
  // Of qwen, the first `max_window_layers` layers see everything; of mistral, none.
  const std::int64_t full_layers =
      !qwen
          ? 0
          : json.optional_integer("max_window_layers", 0, kMaxLayers).value_or(kDefaultFullLayers);
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  for (std::int64_t i = full_layers; i < config.layers; ++i) {
    config.windows[static_cast<std::size_t>(i)] = window;
  }

  const std::vector<std::string> types = json.strings("layer_types");
  if (types.empty()) return;
  if (static_cast<std::int64_t>(types.size()) != config.layers) {
    fail(ErrorCode::file, "{}: layer_types names {} layers, but num_hidden_layers is {}",
         json.where(), types.size(), config.layers);
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool sliding = types[i] == "sliding_attention";
    if (!sliding && types[i] != "full_attention") {
      fail(ErrorCode::file,
           "{}: layer_types[{}] is {}, which is not supported; supported: full_attention, "
           "sliding_attention",
           json.where(), i, in_quotes(types[i]));
    }
    if (sliding && window == 0) {
      fail(ErrorCode::file, "{}: layer_types[{}] is sliding_attention, but there is no {}",
           json.where(), i,
           qwen ? "sliding window (use_sliding_window, sliding_window)" : "sliding_window");
    }
    if (!sliding && window > 0 && !qwen) {
      fail(ErrorCode::file,
           "{}: layer_types[{}] is full_attention, but the sliding_window of {} holds for all "
           "layers; set it to null, or leave layer_types out",
           json.where(), i, name(config.architecture));
    }
    config.windows[i] = sliding ? window : 0;
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

ModelConfig model_config_of(const Json& parsed, const std::string& where) {
  const JsonView json(parsed, where);
  const Family& family = family_of(json);
  ModelConfig config;
  config.architecture = family.architecture;
  const bool neox = family.architecture == Architecture::gpt_neox;
  refuse_other_options(json, family.architecture);
  read_sizes(json, family, config);
  read_biases(json, config);
  read_windows(json, config);
  config.activation = activation_of(json, neox ? Activation::gelu : Activation::silu);
  config.tied_head = json.optional_boolean("tie_word_embeddings").value_or(false);
  config.parallel_residual = neox && json.optional_boolean("use_parallel_residual").value_or(true);
  config.rope = parse_rope(json, config);
  config.stored_dtype = stored_dtype(json);
  if (is_missing(json, "bos_token_id")) config.bos = family.bos;
  if (is_missing(json, "eos_token_id") && family.eos >= 0) config.eos = {family.eos};
  read_tokens(json, config);
  return config;
}

ModelConfig parse_model_config(std::string_view json, const std::string& where) {
  return model_config_of(parse_json(json, where), where);
}

void apply_generation_config(const Json& json, const std::string& where, ModelConfig& config) {
  read_tokens(JsonView(json, where), config);
}

}  // namespace model

ModelConfig read_model_config(const std::filesystem::path& directory) {
  constexpr std::int64_t kMaxBytes = 16 << 20;  // the largest published ones are a few kilobytes
  const std::filesystem::path path = directory / "config.json";
  ModelConfig config =
      model::model_config_of(model::read_json_file(path, kMaxBytes), path.string());
  const std::filesystem::path generation = directory / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    model::apply_generation_config(model::read_json_file(generation, kMaxBytes),
                                   generation.string(), config);
  }
  return config;
}

}  // namespace tessera
