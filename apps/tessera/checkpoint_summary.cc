#include "checkpoint_summary.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/checked.h"
#include "model/checkpoint/quant_config.h"
#include "tessera/weight.h"

namespace tessera::app {
namespace {

// "f16" for "F16"
std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

struct Place {
  std::string_view module;  // "model.layers.0.mlp.up_proj"
  std::string_view part;    // "weight", "weight_packed", "weight_scale", "bias"
};

Place place_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_dense_dtype(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

}  // namespace

CheckpointSummary summarise(const model::Checkpoint& checkpoint) {
  const model::QuantConfig quant =
      model::parse_quant_config(checkpoint.config(), checkpoint.hf_quant_config());
  // Modules with packed codes. Their scales and zero points count for the same format.
  std::map<std::string_view, Format> packed;
  for (const model::StoredTensor& tensor : checkpoint.tensors()) {
    const Place place = place_of(tensor.name);
    const bool codes =
        place.part == "weight_packed" || (place.part == "weight" && !is_dense_dtype(tensor.dtype));
    const model::PackedScheme* scheme = codes ? quant.scheme_of(place.module) : nullptr;
    if (scheme != nullptr) packed[place.module] = scheme->format;
  }
  CheckpointSummary summary;
  summary.notes = quant.notes;
  for (const auto& [module, format] : packed) summary.packed.emplace(name(format));
  for (const model::StoredTensor& tensor : checkpoint.tensors()) {
    const Place place = place_of(tensor.name);
    const std::int64_t bytes = static_cast<std::int64_t>(tensor.data.size());
    summary.bytes += bytes;
    const auto found = packed.find(place.module);
    const bool of_packed = found != packed.end() && place.part != "bias";
    FormatShare& share =
        summary.formats[of_packed ? std::string(name(found->second)) : lower(tensor.dtype)];
    share.bytes += bytes;
    const bool codes = place.part == "weight_packed" || place.part == "weight";
    if (of_packed && !codes) continue;  // scales are not parameters
    const std::int64_t numbers = of_packed ? checked_mul(bytes, 8) / info(found->second).bits
                                           : checked_product(tensor.shape);
    ++share.tensors;
    share.parameters += numbers;
    summary.parameters += numbers;
  }
  return summary;
}

}  // namespace tessera::app
