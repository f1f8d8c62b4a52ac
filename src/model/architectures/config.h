// config.json of a Hugging Face checkpoint, read as transformers reads it: the same keys, old and
// new, and the same defaults for those that are missing.
#pragma once

#include <string>
#include <string_view>

#include "model/checkpoint/json.h"
#include "tessera/model_config.h"

namespace tessera::model {

// `where` names the file in errors.
ModelConfig parse_model_config(std::string_view json, const std::string& where);
ModelConfig model_config_of(const Json& json, const std::string& where);

// Stop tokens of generation_config.json, which stand above those of config.json.
void apply_generation_config(const Json& json, const std::string& where, ModelConfig& config);

// How the frequencies of the rotary embedding are made, from rope_parameters (new) or rope_scaling,
// rope_theta, rotary_emb_base, rotary_pct, partial_rotary_factor (old); config_rope.cc. The
// architecture, head_dim and max_positions of `config` are known.
RopeConfig parse_rope(const JsonView& json, const ModelConfig& config);

}  // namespace tessera::model
