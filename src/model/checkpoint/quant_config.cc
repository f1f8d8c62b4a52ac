#include "model/checkpoint/quant_config.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

constexpr std::string_view kMethods =
    "compressed-tensors (nvfp4-pack-quantized, mxfp4-pack-quantized, pack-quantized with 4 or 8 "
    "bits, int-quantized, float-quantized), modelopt (NVFP4, FP8) and tessera (nf4)";

template <typename... Args>
[[noreturn]] void refuse(const std::string& where, fmt::format_string<Args...> format,
                         Args&&... args) {
  fail(ErrorCode::unsupported, "{}: {}; supported: {}", where,
       fmt::format(format, std::forward<Args>(args)...), kMethods);
}

void add_note(QuantConfig& to, std::string note) {
  if (std::find(to.notes.begin(), to.notes.end(), note) == to.notes.end()) {
    to.notes.push_back(std::move(note));
  }
}

// ---- compressed-tensors, and tessera's own in the same words ------------------------------------

// "weights" of a group.
struct WeightArgs {
  std::int64_t bits = 8;
  bool is_float = false, symmetric = true;
  std::string type;
  ScaleOf scale_of = ScaleOf::tensor;
  std::int64_t group = 0;
};

void refuse_activation_order(const JsonView& weights) {
  const Json* order = weights.find("actorder");
  if (!order) return;
  const bool by_weight = order->is_string() && (*order == "weight" || *order == "static");
  if (by_weight || *order == false) return;
  refuse(weights.where(), "actorder {} needs weight_g_idx, which is not supported", order->dump());
}

WeightArgs parse_weight_args(const JsonView& weights) {
  constexpr std::int64_t kMaxGroup = std::int64_t{1} << 31;
  WeightArgs args;
  args.bits = weights.optional_integer("num_bits", 1, 64).value_or(8);
  args.type = weights.optional_string("type").value_or("int");
  args.is_float = args.type == "float";
  args.symmetric = weights.optional_boolean("symmetric").value_or(true);
  refuse_activation_order(weights);
  const std::int64_t group = weights.optional_integer("group_size", -1, kMaxGroup).value_or(0);
  const std::string implied = group > 0 ? "group" : group == -1 ? "channel" : "tensor";
  const std::string strategy = weights.optional_string("strategy").value_or(implied);
  if (strategy == "tensor") {
    args.scale_of = ScaleOf::tensor;
  } else if (strategy == "channel") {
    args.scale_of = ScaleOf::row;
  } else if (strategy == "group" || strategy == "tensor_group") {
    if (group <= 0) {
      refuse(weights.where(), "strategy {} with a group_size of {}", in_quotes(strategy), group);
    }
    args.scale_of = ScaleOf::group;
    args.group = group;
  } else {
    refuse(weights.where(), "weights of strategy {}, where tensor, channel and group can be read",
           in_quotes(strategy));
  }
  return args;
}

PackedScheme float4_scheme(const std::string& where, StoredAs stored, Format format,
                           const WeightArgs& args) {
  const std::int64_t group = info(format).default_group;
  if (args.bits != 4 || !args.is_float || !args.symmetric || args.group != group) {
    refuse(where, "{} with {}-bit {}symmetric weights of type {} in groups of {}, not of {}",
           name(format), args.bits, args.symmetric ? "" : "a", in_quotes(args.type), args.group,
           group);
  }
  return {.stored = stored, .format = format, .group = group, .name = {}};
}

PackedScheme packed_int_scheme(const std::string& where, const WeightArgs& args) {
  if (args.type != "int" || (args.bits != 4 && args.bits != 8)) {
    refuse(where, "pack-quantized with {}-bit weights of type {}", args.bits, in_quotes(args.type));
  }
  if (!args.symmetric && args.scale_of == ScaleOf::tensor) {
    refuse(where, "pack-quantized with one zero point for a whole tensor");
  }
  return {.stored = StoredAs::packed_int,
          .format = args.bits == 4 ? Format::int4 : Format::int8,
          .scale_of = args.scale_of,
          .group = args.group,
          .zero_points = !args.symmetric,
          .name = {}};
}

// int-quantized, float-quantized and, by the type of its weights, naive-quantized.
PackedScheme plain_scheme(const std::string& where, const std::string& format,
                          const WeightArgs& args) {
  const bool float_asked = format == "float-quantized", int_asked = format == "int-quantized";
  if (args.is_float && !int_asked) {
    if (args.bits != 8 || !args.symmetric || args.scale_of == ScaleOf::group) {
      refuse(where, "{} with {}-bit {}symmetric weights{}", format, args.bits,
             args.symmetric ? "" : "a", args.scale_of == ScaleOf::group ? " in groups" : "");
    }
    return {.stored = StoredAs::plain_fp8,
            .format = Format::fp8,
            .scale_of = args.scale_of,
            .name = {}};
  }
  // Fewer bits than eight are stored in eight as well.
  if (args.type != "int" || float_asked || args.bits > 8) {
    refuse(where, "{} with {}-bit weights of type {}", format, args.bits, in_quotes(args.type));
  }
  return {.stored = StoredAs::plain_int8,
          .format = Format::int8,
          .scale_of = args.scale_of,
          .group = args.group,
          .zero_points = !args.symmetric,
          .name = {}};
}

std::optional<PackedScheme> parse_scheme(const JsonView& group, const std::string& format,
                                         bool own_method) {
  const std::optional<JsonView> weights = group.optional_object("weights");
  if (!weights || format == "dense") return std::nullopt;  // only activations, if anything
  const WeightArgs args = parse_weight_args(*weights);
  const std::string& where = group.where();
  PackedScheme scheme;
  if (format == "nvfp4-pack-quantized") {
    scheme = float4_scheme(where, StoredAs::nvfp4, Format::nvfp4, args);
  } else if (format == "mxfp4-pack-quantized") {
    scheme = float4_scheme(where, StoredAs::mxfp4, Format::mxfp4, args);
  } else if (format == "pack-quantized") {
    scheme = packed_int_scheme(where, args);
  } else if (format == "int-quantized" || format == "float-quantized" ||
             format == "naive-quantized") {
    scheme = plain_scheme(where, format, args);
  } else if (own_method && format == "nf4-pack-quantized") {
    WeightArgs as_float = args;
    as_float.is_float = args.type == "normal-float";
    scheme = float4_scheme(where, StoredAs::nf4, Format::nf4, as_float);
  } else {
    refuse(where, "the format {}", in_quotes(format));
  }
  scheme.name = format;
  return scheme;
}

// Features that change what the tensors mean.
void refuse_extras(const JsonView& config) {
  if (const auto sparsity = config.optional_object("sparsity_config")) {
    const std::string format = sparsity->optional_string("format").value_or("dense");
    if (format != "dense") refuse(config.where(), "sparsity of the format {}", in_quotes(format));
  }
  if (const auto transform = config.optional_object("transform_config")) {
    const Json* groups = transform->find("config_groups");
    if (groups && !groups->empty()) refuse(config.where(), "transforms (transform_config)");
  }
}

void note_kv_cache(const JsonView& config, QuantConfig& to) {
  if (config.has("kv_cache_scheme")) {
    add_note(to, "quantisation of the KV cache (kv_cache_scheme) is not applied");
  }
}

void note_activations(const JsonView& group, QuantConfig& to) {
  for (const char* key : {"input_activations", "output_activations"}) {
    if (!group.has(key)) continue;
    const JsonView args(*group.find(key), fmt::format("{}, {}", group.where(), key));
    add_note(to, fmt::format("activation quantisation ({}: {} bits, {}) is not applied", key,
                             args.optional_integer("num_bits", 1, 64).value_or(8),
                             in_quotes(args.optional_string("type").value_or("int"))));
  }
}

void parse_groups(const JsonView& config, bool own_method, QuantConfig& to) {
  refuse_extras(config);
  note_kv_cache(config, to);
  const std::string everywhere = config.optional_string("format").value_or("");
  for (const std::string& pattern : config.strings("ignore")) {
    to.ignore.push_back(ModulePattern::target(pattern, config.where()));
  }
  const std::optional<JsonView> groups = config.optional_object("config_groups");
  if (!groups) refuse(config.where(), "no config_groups");
  for (const auto& [key, value] : groups->json().items()) {
    const std::string where = fmt::format("{}, {}", groups->where(), key);
    if (!value.is_object()) refuse(where, "the preset {} in place of a scheme", in_quotes(key));
    const JsonView group(value, where);
    const std::string format = group.optional_string("format").value_or(everywhere);
    if (format.empty()) refuse(where, "neither it nor quantization_config has a format");
    const std::optional<PackedScheme> scheme = parse_scheme(group, format, own_method);
    note_activations(group, to);
    for (const std::string& target : group.strings("targets")) {
      to.targets.push_back({ModulePattern::target(target, where), scheme});
    }
  }
}

// ---- ModelOpt -----------------------------------------------------------------------------------

PackedScheme modelopt_scheme(const std::string& where, const std::string& algorithm,
                             std::int64_t group) {
  if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") {
    if (group != 16) refuse(where, "{} in groups of {}, not of 16", algorithm, group);
    return {.stored = StoredAs::modelopt_nvfp4,
            .format = Format::nvfp4,
            .group = group,
            .name = algorithm};
  }
  if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    const bool row = algorithm != "FP8";
    return {.stored = StoredAs::plain_fp8,
            .format = Format::fp8,
            .scale_of = row ? ScaleOf::row : ScaleOf::tensor,
            .name = algorithm};
  }
  refuse(where, "the quant_algo {}", in_quotes(algorithm));
}

void add_modelopt_target(const JsonView& entry, ModulePattern pattern, QuantConfig& to) {
  const std::string algorithm = entry.string("quant_algo");
  const std::int64_t group = entry.optional_integer("group_size", 0, 1 << 20).value_or(16);
  to.targets.push_back(
      {std::move(pattern), modelopt_scheme(entry.where(), algorithm, group == 0 ? 16 : group)});
  if (algorithm != "W4A16_NVFP4") {
    add_note(to, fmt::format("activation quantisation ({}) is not applied", algorithm));
  }
}

// `ignore` is spelled exclude_modules in hf_quant_config.json.
void parse_modelopt(const JsonView& config, QuantConfig& to) {
  note_kv_cache(config, to);
  const std::string kv_cache = config.optional_string("kv_cache_quant_algo").value_or("none");
  if (kv_cache != "none" && kv_cache != "NONE") {
    add_note(to,
             fmt::format("quantisation of the KV cache ({}) is not applied", in_quotes(kv_cache)));
  }
  for (const char* key : {"ignore", "exclude_modules"}) {
    for (const std::string& pattern : config.strings(key)) {
      to.ignore.push_back(ModulePattern::wildcard(pattern));
    }
  }
  if (!config.has("quant_algo")) return;  // only the cache
  if (config.string("quant_algo") != "MIXED_PRECISION") {
    add_modelopt_target(config, ModulePattern::wildcard("*"), to);
    return;
  }
  const std::optional<JsonView> layers = config.optional_object("quantized_layers");
  if (!layers) refuse(config.where(), "MIXED_PRECISION without quantized_layers");
  for (const auto& [layer, value] : layers->json().items()) {
    add_modelopt_target(JsonView(value, fmt::format("{}, {}", layers->where(), layer)),
                        ModulePattern::wildcard(layer), to);
  }
}

bool is_modelopt(std::string_view method) {
  // Some releases named the algorithm here as well.
  return method == "modelopt" || method == "modelopt_fp4" || method == "modelopt_mixed";
}

// A module's class, as far as its name tells. (A tied head is a Linear that is stored under the
// name of the embedding.)
bool is_of_class(std::string_view module, std::string_view name) {
  if (name == "Linear") return true;
  const std::string_view last = module.substr(module.rfind('.') + 1);
  constexpr std::array<std::string_view, 2> kEmbeddings = {"embed_in", "embed_tokens"};
  return name == "Embedding" &&
         std::find(kEmbeddings.begin(), kEmbeddings.end(), last) != kEmbeddings.end();
}

}  // namespace

const PackedScheme* QuantConfig::scheme_of(std::string_view module) const {
  const auto is_ignored = [&](const ModulePattern& pattern) { return pattern.matches(module); };
  if (std::any_of(ignore.begin(), ignore.end(), is_ignored)) return nullptr;
  const Target* best = nullptr;
  int best_rank = 0;
  for (const Target& target : targets) {
    int rank = 0;
    if (target.pattern.matches(module)) {
      rank = target.pattern.is_expression() ? 3 : 4;
    } else if (is_of_class(module, target.pattern.text())) {
      rank = target.pattern.text() == "Linear" ? 1 : 2;
    }
    if (rank > best_rank) {
      best = &target;
      best_rank = rank;
    }
  }
  return best && best->scheme ? &*best->scheme : nullptr;
}

QuantConfig parse_quant_config(const Json& config, const Json& hf_quant_config) {
  QuantConfig result;
  const JsonView model(config, "config.json");
  if (const auto quantization = model.optional_object("quantization_config")) {
    result.where = quantization->where();
    const std::string method = quantization->optional_string("quant_method").value_or("");
    if (method == "compressed-tensors" || method == "tessera") {
      parse_groups(*quantization, method == "tessera", result);
    } else if (is_modelopt(method)) {
      parse_modelopt(*quantization, result);
    } else if (method.empty()) {
      refuse(result.where, "no quant_method");
    } else {
      refuse(result.where, "the quant_method {}", in_quotes(method));
    }
  } else if (!hf_quant_config.is_null()) {
    const JsonView file(hf_quant_config, "hf_quant_config.json");
    const auto details = file.optional_object("quantization");
    if (!details) refuse(file.where(), "no \"quantization\"");
    result.where = details->where();
    parse_modelopt(*details, result);
  }
  return result;
}

}  // namespace tessera::model
