// The one table of number formats (formats.cc). It has everything about formats that a table can
// express: sizes, dtypes, codecs, and the names that checkpoints use. Only kernels have code of
// their own for each format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/quant.h"
#include "tessera/weight.h"

namespace tessera::quant {

// How a checkpoint stores a format: the words of its quantization_config, and the tensors MODULE.x
// of a weight [out, in]. There is always a MODULE.weight_scale besides the codes.
struct StoredForm {
  std::string_view method;  // quant_method: compressed-tensors, modelopt or tessera
  std::string_view name;    // format, or modelopt's quant_algo: "nvfp4-pack-quantized", "NVFP4"
  std::string_view type;    // of the codes: "float", "int", "normal-float"
  std::string_view codes;   // the tensor of codes: "weight_packed"
  // Codes and the zero points of rows are packed into int32 words, and there is a weight_shape.
  bool words = false;
  std::string_view tensor_scale{};  // the tensor with the one scale for all; empty: there is none
  bool divides = false;             // that scale is a divisor
};

struct FormatEntry {
  FormatInfo info;
  DType code_dtype;
  // Accepted groups: the default alone if this is 0, else the whole row and multiples of this.
  std::int64_t group_step = 0;
  bool float_scales = false;  // scales are f32, f16 or bf16 as they come, not scale_dtype alone
  bool zeros = false;         // takes zero points
  // The one scale for all, from the largest magnitude; null: the format has none.
  float (*tensor_scale)(float largest, ScaleSearch search) = nullptr;
  void (*decode_row)(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out) = nullptr;
  void (*encode_row)(const Weight& weight, std::int64_t row, const float* x,
                     ScaleSearch search) = nullptr;
  std::span<const StoredForm> stored{};  // `tessera quantize` writes the first
  bool suggested = false;                // named to users whose weights do not fit

  // Every block has the same size, and a scale of scale_dtype.
  bool has_fixed_blocks() const { return group_step == 0 && info.default_group > 0; }
};

// Throws if the number is not that of a format.
const FormatEntry& entry(Format format);
std::span<const FormatEntry> packed_formats();  // in the order of the enum

// The names of the formats for which the predicate holds: "int4 and int8".
std::string names_of(bool (*holds)(const FormatEntry& entry));

}  // namespace tessera::quant
