// How published checkpoints store packed weights: which layers are packed and in which format
// (quantization_config of config.json, or hf_quant_config.json), and where codes, scales and zero
// points lie. Reading gives Weights in Tessera's own published layout, without a copy where the
// bytes are the same.
//
// The tensors decide whether a layer is packed; the config says how. A layer that the config calls
// packed, but that the file holds as a dense `weight`, is dense: writers forget to list layers in
// `ignore` that they did not pack (routers, heads), and a float matrix can mean one thing only. A
// layer that is packed, but dense by the config, is refused: its numbers could mean several things.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "tessera/weight.h"

namespace tessera::model {

class PackedLayouts {
 public:
  // Reads what the checkpoint says; it must outlive this and every Weight read. Refuses methods and
  // options that are not supported, by name, with the list of those that are.
  explicit PackedLayouts(const Checkpoint& checkpoint);
  ~PackedLayouts();

  // Whether this module ("model.layers.0.mlp.up_proj"), a Linear or an embedding, is stored packed.
  bool is_packed(std::string_view module) const;
  // Whether there are packed modules at all.
  bool any_packed() const;
  // The weight of a packed module, on the CPU, in the published layout; views of the checkpoint's
  // memory where possible. Throws if a tensor is missing or has another shape, with its name and
  // both shapes.
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
