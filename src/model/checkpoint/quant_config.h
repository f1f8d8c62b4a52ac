// What a checkpoint says about its packed layers: quantization_config of config.json, or
// hf_quant_config.json. Parsed once and checked; methods and options that Tessera cannot read are
// refused by name, with the list of those that it can.
//
//   quant_method        who writes it
//   compressed-tensors  llm-compressor, vLLM; `tessera quantize`
//   modelopt            NVIDIA ModelOpt
//   tessera             `tessera quantize`, for the format that the others lack (nf4)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/module_pattern.h"
#include "tessera/weight.h"

namespace tessera::model {

// Where the parts of a weight lie: tensors MODULE.x of the file, for a weight [out, in].
enum class StoredAs : std::uint8_t {
  nvfp4,           // weight_packed u8, weight_scale E4M3, weight_global_scale f32: a divisor
  mxfp4,           // weight_packed u8, weight_scale E8M0
  packed_int,      // weight_packed: int32 words of 4- or 8-bit codes; weight_scale,
                   // weight_zero_point: words as well, but of rows; weight_shape
  plain_int8,      // weight i8, weight_scale, weight_zero_point i8
  plain_fp8,       // weight E4M3, weight_scale
  modelopt_nvfp4,  // weight u8, weight_scale E4M3, weight_scale_2 f32: a factor
  nf4,             // weight_packed u8, weight_scale f32
};

// One scale for the matrix, for each row, or for each group of a row.
enum class ScaleOf : std::uint8_t { tensor, row, group };

struct PackedScheme {
  StoredAs stored = StoredAs::nvfp4;
  Format format = Format::nvfp4;
  ScaleOf scale_of = ScaleOf::group;
  std::int64_t group = 0;    // with ScaleOf::group
  bool zero_points = false;  // weight_zero_point is there
  std::string name;          // as the config spells it: "nvfp4-pack-quantized", "FP8"
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

  // The scheme of a module, null where the config leaves it dense. Of several targets that match, a
  // name goes before an expression, and that before a class.
  const PackedScheme* scheme_of(std::string_view module) const;
};

// `config` is config.json, `hf_quant_config` that file or null. Without either saying anything: no
// targets.
QuantConfig parse_quant_config(const Json& config, const Json& hf_quant_config);

}  // namespace tessera::model
