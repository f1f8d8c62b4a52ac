// The reverse of packed_layouts.h: weights in the layouts that other programs load, and the
// quantization_config that describes them. Formats that compressed-tensors lacks are stored by our
// own method, in the same terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/safetensors.h"
#include "tessera/quant.h"
#include "tessera/weight.h"

namespace tessera::model {

// The tensors that hold a weight [out, in] packed by quantize() with these options: names, dtypes
// and shapes, without data.
std::vector<TensorToWrite> packed_tensors(const std::string& module, const QuantizeOptions& options,
                                          std::int64_t out_features, std::int64_t in_features);

// The same tensors with their data, of a weight in the published layout on the CPU.
struct PackedTensors {
  std::vector<TensorToWrite> tensors;
  std::vector<std::vector<std::byte>> storage;  // what the tensors point into
};
PackedTensors pack_tensors(const std::string& module, const Weight& weight);

struct PackedConfig {
  QuantizeOptions options{};
  bool embedding = false;             // packed as well
  std::vector<std::string> ignore{};  // Linear layers that stay dense
};
// The value of "quantization_config".
Json packed_config(const PackedConfig& config);

}  // namespace tessera::model
