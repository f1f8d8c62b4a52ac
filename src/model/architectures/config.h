// config.json of a Hugging Face checkpoint, read as transformers reads it: the same keys, old and
// new, and the same defaults for those that are missing.
#pragma once

#include <string>
#include <string_view>

#include "model/architectures/registry.h"
#include "model/checkpoint/json.h"
#include "tessera/model_config.h"

namespace tessera::model {

// `where` names the file in errors.
ModelConfig parse_model_config(std::string_view json, const std::string& where);
ModelConfig model_config_of(const Json& json, const std::string& where);
// Reads it as this architecture does.
ModelConfig read_config_as(const Architecture& architecture, const JsonView& json);

// Stop tokens of generation_config.json, which take precedence over those of config.json.
void apply_generation_config(const Json& json, const std::string& where, ModelConfig& config);

}  // namespace tessera::model
