#include "model/checkpoint/quant_config.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/architectures/registry.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

constexpr std::string_view kCompressed = "compressed-tensors", kModelOpt = "modelopt",
                           kOwn = "tessera";

// "nvfp4-pack-quantized, pack-quantized with 4 or 8 bits": a method's names for its forms.
std::string forms_of(std::string_view method) {
  std::vector<std::pair<std::string_view, std::string>> forms;  // and their bits
  for (const quant::FormatEntry& entry : quant::packed_formats()) {
    for (const quant::StoredForm& form : entry.stored) {
      if (form.method != method) continue;
      const std::string bits = std::to_string(entry.info.bits);
      const auto known = std::find_if(forms.begin(), forms.end(),
                                      [&](const auto& f) { return f.first == form.name; });
      if (known == forms.end()) {
        forms.emplace_back(form.name, bits);
      } else {
        known->second += " or " + bits;
      }
    }
  }
  std::string text;
  for (const auto& [name, bits] : forms) {
    if (!text.empty()) text += ", ";
    text += name;
    if (bits.find("or") != std::string::npos) text += " with " + bits + " bits";
  }
  return text;
}

std::string supported_methods() {
  return fmt::format("{} ({}), {} ({}) and {} ({})", kCompressed, forms_of(kCompressed), kModelOpt,
                     forms_of(kModelOpt), kOwn, forms_of(kOwn));
}

template <typename... Args>
[[noreturn]] void refuse(const std::string& where, fmt::format_string<Args...> format,
                         Args&&... args) {
  fail(ErrorCode::unsupported, "{}: {}; supported: {}", where,
       fmt::format(format, std::forward<Args>(args)...), supported_methods());
}

void add_note(QuantConfig& to, std::string note) {
  if (std::find(to.notes.begin(), to.notes.end(), note) == to.notes.end()) {
    to.notes.push_back(std::move(note));
  }
}

// ---- compressed-tensors, and tessera's own in the same terms ------------------------------------

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

// The form of this name that a format has.
const quant::StoredForm* form_named(Format format, std::string_view name) {
  for (const quant::StoredForm& form : quant::entry(format).stored) {
    if (form.name == name) return &form;
  }
  fail(ErrorCode::unsupported, "{} has no form {}", tessera::name(format), name);
}

// The formats of fixed blocks, each of which has a form of its own. None if there is no such form.
std::optional<PackedScheme> block_scheme(const std::string& where, const std::string& name,
                                         bool own_method, const WeightArgs& args) {
  for (const quant::FormatEntry& entry : quant::packed_formats()) {
    if (!entry.has_fixed_blocks()) continue;
    const FormatInfo& format = entry.info;
    for (const quant::StoredForm& form : entry.stored) {
      const bool of_method = form.method == kCompressed || (own_method && form.method == kOwn);
      if (form.name != name || !of_method) continue;
      if (args.bits != format.bits || args.type != form.type || !args.symmetric ||
          args.group != format.default_group) {
        refuse(where, "{} with {}-bit {}symmetric weights of type {} in groups of {}, not of {}",
               format.name, args.bits, args.symmetric ? "" : "a", in_quotes(args.type), args.group,
               format.default_group);
      }
      return PackedScheme{
          .form = &form, .format = format.format, .group = format.default_group, .name = {}};
    }
  }
  return std::nullopt;
}

PackedScheme packed_int_scheme(const std::string& where, const WeightArgs& args) {
  if (args.type != "int" || (args.bits != 4 && args.bits != 8)) {
    refuse(where, "pack-quantized with {}-bit weights of type {}", args.bits, in_quotes(args.type));
  }
  if (!args.symmetric && args.scale_of == ScaleOf::tensor) {
    refuse(where, "pack-quantized with one zero point for a whole tensor");
  }
  const Format format = args.bits == 4 ? Format::int4 : Format::int8;
  return {.form = form_named(format, "pack-quantized"),
          .format = format,
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
    return {.form = form_named(Format::fp8, "float-quantized"),
            .format = Format::fp8,
            .scale_of = args.scale_of,
            .name = {}};
  }
  // Fewer bits than eight are stored in eight as well.
  if (args.type != "int" || float_asked || args.bits > 8) {
    refuse(where, "{} with {}-bit weights of type {}", format, args.bits, in_quotes(args.type));
  }
  return {.form = form_named(Format::int8, "int-quantized"),
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
  if (const auto of_blocks = block_scheme(where, format, own_method, args)) {
    scheme = *of_blocks;
  } else if (format == "pack-quantized") {
    scheme = packed_int_scheme(where, args);
  } else if (format == "int-quantized" || format == "float-quantized" ||
             format == "naive-quantized") {
    scheme = plain_scheme(where, format, args);
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
                             std::optional<std::int64_t> given_group) {
  for (const quant::FormatEntry& entry : quant::packed_formats()) {
    for (const quant::StoredForm& form : entry.stored) {
      if (form.method != kModelOpt || form.name != algorithm) continue;
      PackedScheme scheme{.form = &form, .format = entry.info.format, .name = algorithm};
      if (entry.has_fixed_blocks()) {
        scheme.group = entry.info.default_group;
        if (given_group && *given_group != scheme.group) {
          refuse(where, "{} in groups of {}, not of {}", algorithm, *given_group, scheme.group);
        }
      } else {
        scheme.scale_of = algorithm == "FP8" ? ScaleOf::tensor : ScaleOf::row;
      }
      return scheme;
    }
  }
  refuse(where, "the quant_algo {}", in_quotes(algorithm));
}

void add_modelopt_target(const JsonView& entry, ModulePattern pattern, QuantConfig& to) {
  const std::string algorithm = entry.string("quant_algo");
  std::optional<std::int64_t> group = entry.optional_integer("group_size", 0, 1 << 20);
  if (group == 0) group.reset();
  to.targets.push_back({std::move(pattern), modelopt_scheme(entry.where(), algorithm, group)});
  if (!algorithm.starts_with("W4A16_")) {  // activations of 16 bits stay as they are
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
  return method == kModelOpt || method == "modelopt_fp4" || method == "modelopt_mixed";
}

// Whether a module is of this class, as far as its name shows. (A tied head is a Linear that is
// stored under the name of the embedding.)
bool is_of_class(std::string_view module, std::string_view name) {
  if (name == "Linear") return true;
  if (name != "Embedding") return false;
  const auto last = [](std::string_view path) { return path.substr(path.rfind('.') + 1); };
  const auto known = architectures();
  return std::any_of(known.begin(), known.end(), [&](const Architecture* architecture) {
    return last(architecture->modules.table) == last(module);
  });
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
    if (method == kCompressed || method == kOwn) {
      parse_groups(*quantization, method == kOwn, result);
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
