#include "model/architectures/registry.h"

#include <algorithm>
#include <optional>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "tessera/cache_batch.h"

namespace tessera::model {

extern const Architecture kGptNeox, kLlama, kMistral, kQwen2, kQwen3;
static constexpr const Architecture* kArchitectures[] = {
    &kGptNeox,  // gpt_neox.cc
    &kLlama,    // llama.cc, with the next three
    &kMistral, &kQwen2, &kQwen3,
};

bool Architecture::reads(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

StepKind step_kind(std::int64_t tokens, const StepFusion& fusion) {
  if (tokens == 1 && fusion.layers) {
    return fusion.embedding ? StepKind::fused_token : StepKind::fused_layers;
  }
  if (tokens == 1) return StepKind::token;
  return tokens <= CacheBatch::kFewTokens ? StepKind::short_prompt : StepKind::prompt;
}

namespace {

// forward.cc: append_and_attend(), rotate_and_append(), cached_attention().
void add_attention(std::vector<StepCalls>& calls, std::int64_t layers, StepKind kind) {
  // Of the last layer of a few tokens, one row is computed to the end.
  const std::int64_t at_once = kind == StepKind::token          ? layers
                               : kind == StepKind::short_prompt ? layers - 1
                                                                : 0;
  if (at_once > 0) {
    calls.push_back({"append_attention", at_once,
                     "query and key rotated, key and value into the cache, attention over it"});
  }
  if (at_once == layers) return;
  calls.push_back(
      {"rotary_append", layers - at_once, "query and key rotated, key and value into the cache"});
  calls.push_back({"attention", layers - at_once, "over the cache"});
}

}  // namespace

std::vector<StepCalls> Architecture::promised_calls(const ModelConfig& config,
                                                    StepKind kind) const {
  const char* norm_op = norm == NormKind::layer_norm ? "layer_norm" : "rms_norm";
  if (kind == StepKind::fused_token) {
    return {{"decode_layers", 1, "embedding, all layers, norm at the end"},
            {"linear", 1, "the head"}};
  }
  std::vector<StepCalls> calls{{"embedding", 1, "the ids"}};
  if (kind == StepKind::fused_layers) {
    calls.push_back({"decode_layers", 1, "all layers, norm at the end"});
    calls.push_back({"linear", 1, "the head"});
    return calls;
  }
  for (const StepCalls& op : layer_calls(config)) {
    const bool at_end = op.op == norm_op || op.op == "linear";
    calls.push_back(
        {op.op, op.calls * config.layers + (at_end ? 1 : 0),
         fmt::format("{} per layer: {}{}", op.calls, op.what, at_end ? "; 1 at the end" : "")});
  }
  add_attention(calls, config.layers, kind);
  return calls;
}

std::span<const Architecture* const> architectures() { return kArchitectures; }

std::string supported_architectures() {
  std::string list;
  for (const Architecture* entry : kArchitectures) {
    if (!list.empty()) list += ", ";
    list += fmt::format("{} ({})", entry->name, entry->causal_lm);
  }
  return list;
}

const Architecture& find_architecture(const JsonView& config) {
  const std::vector<std::string> classes = config.strings("architectures");
  const std::optional<std::string> model_type = config.optional_string("model_type");
  if (classes.empty() && !model_type) {
    fail(ErrorCode::file, "{}: there is neither model_type nor architectures; supported: {}",
         config.where(), supported_architectures());
  }
  for (const Architecture* entry : kArchitectures) {
    const bool class_fits = classes.empty() || std::find(classes.begin(), classes.end(),
                                                         entry->causal_lm) != classes.end();
    const bool type_fits = !model_type || *model_type == entry->name;
    if (class_fits && type_fits) return *entry;
  }
  fail(ErrorCode::file, "{}: architecture {} (model_type {}) is not supported; supported: {}",
       config.where(), classes.empty() ? "not given" : in_quotes(classes.front()),
       model_type ? in_quotes(*model_type) : "not given", supported_architectures());
}

const Architecture& find_architecture(const ModelConfig& config) {
  for (const Architecture* entry : kArchitectures) {
    if (entry->name == config.architecture) return *entry;
  }
  fail(ErrorCode::invalid_argument, "ModelConfig::architecture {} is not supported; supported: {}",
       in_quotes(config.architecture), supported_architectures());
}

std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, WeightSource& weights) {
  return find_architecture(config).make(config, dtype, weights);
}

}  // namespace tessera::model
