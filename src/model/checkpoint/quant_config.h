// What a checkpoint says about its packed layers: quantization_config of config.json, or
// hf_quant_config.json. It is parsed once and checked. Methods and options that Tessera cannot read
// are refused by name, with the list of those that it can (quant/format_table.h).
//
//   quant_method        who writes it
//   compressed-tensors  llm-compressor, vLLM; `tessera quantize`
//   modelopt            NVIDIA ModelOpt
//   tessera             `tessera quantize`, for formats that the others lack
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/module_pattern.h"
#include "quant/format_table.h"
#include "tessera/weight.h"

namespace tessera::model {

// One scale for the matrix, for each row, or for each group of a row.
enum class ScaleOf : std::uint8_t { tensor, row, group };

struct PackedScheme {
  const quant::StoredForm* form = nullptr;  // which tensors hold the parts of a weight
  Format format = Format::dense;
  ScaleOf scale_of = ScaleOf::group;
  std::int64_t group = 0;    // with ScaleOf::group
  bool zero_points = false;  // weight_zero_point is there
  std::string name;          // as the config spells it: "float-quantized", "FP8"
};

struct QuantConfig {
  struct Target {
    ModulePattern pattern;  // may also be the name of a class: "Linear", "Embedding"
    // Empty: the layers stay dense.
    std::optional<PackedScheme> scheme;
  };

  std::string where;  // "config.json, quantization_config": names the source in messages
  std::vector<Target> targets;
  std::vector<ModulePattern> ignore;
  // What the config asks for and Tessera does not do, one sentence each.
  std::vector<std::string> notes;

  // The scheme of a module; null if the config leaves it dense. If several targets match, a name
  // comes before an expression, and an expression before a class.
  const PackedScheme* scheme_of(std::string_view module) const;
};

// `config` is config.json; `hf_quant_config` is hf_quant_config.json, or null. If neither describes
// packed layers, there are no targets.
QuantConfig parse_quant_config(const Json& config, const Json& hf_quant_config);

}  // namespace tessera::model
