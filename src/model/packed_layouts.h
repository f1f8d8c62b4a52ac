// How published checkpoints store packed weights: which layers are packed and in which format
// (quantization_config of config.json, or hf_quant_config.json), and where codes, scales and zero
// points lie. Reading gives Weights in Tessera's own published layout, without a copy where the
// bytes are the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "tessera/context.h"
#include "tessera/quant.h"
#include "tessera/weight.h"

namespace tessera::model {

class PackedLayouts {
 public:
  // Reads what the checkpoint says. Refuses methods and options that are not supported, by name,
  // with the list of those that are.
  explicit PackedLayouts(const Checkpoint& checkpoint);
  ~PackedLayouts();

  // Is this module ("model.layers.0.mlp.up_proj"), a Linear of the model, stored packed?
  bool is_packed(std::string_view module) const;
  // The weight of a packed module, on the CPU, in the published layout; views of the checkpoint's
  // memory where possible. Throws where tensors are missing or shaped otherwise: names the tensor,
  // says both shapes.
  PackedWeight read(std::string_view module, std::int64_t out_features,
                    std::int64_t in_features) const;
  // What the config asks for and Tessera does not do, one sentence each.
  const std::vector<std::string>& notes() const;

 private:
  struct Scheme;
  const Checkpoint* checkpoint_;
  std::unique_ptr<Scheme> scheme_;
};

}  // namespace tessera::model
