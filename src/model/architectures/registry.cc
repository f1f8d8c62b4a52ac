#include "model/architectures/registry.h"

#include <algorithm>
#include <optional>

#include "core/fail.h"
#include "model/checkpoint/quote.h"

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
