// Packs a dense checkpoint layer by layer, so that it takes the memory of the largest layer only.
// Everything that is not a linear layer is copied unchanged, including the tokenizer's files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "tessera/context.h"
#include "tessera/modules.h"
#include "tessera/quant.h"

namespace tessera::model {

// A matrix of the checkpoint that can be packed.
struct PackableLayer {
  std::string name;  // "model.layers.0.mlp.up_proj"
  std::int64_t out_features = 0, in_features = 0;
  std::int64_t dense_bytes = 0;  // in the file
  bool embedding = false;        // the token embedding; a tied head is the same matrix
};
// Sorted by name, layer 10 after layer 9. Refuses a checkpoint that is packed already.
std::vector<PackableLayer> packable_layers(const Checkpoint& checkpoint);

// The options with a group that divides every row, because other programs require that: for int4
// without a given group, the largest of 128, 64 and 32 that divides it.
QuantizeOptions with_fitting_group(QuantizeOptions options,
                                   const std::vector<PackableLayer>& layers);

// Bytes of the layer in the new checkpoint: codes, scales, zero points, padding.
std::int64_t stored_bytes(const PackableLayer& layer, const QuantizeOptions& options);

struct QuantizeCheckpointArgs {
  std::filesystem::path out{};  // a folder that is new or empty
  QuantizeOptions options{};
  PrecisionPlan plan{};    // packs each layer with `options` unless the plan calls it dense
  bool embedding = false;  // packs the embedding as well, unless the plan calls it dense
  bool force = false;      // `out` may hold files; a model among them is replaced
  // Called with the bytes of dense weights done so far and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

struct QuantizedLayer {
  std::string name;
  bool packed = false;
  std::int64_t dense_bytes = 0, stored_bytes = 0;
  double relative_error = 0;  // |W' - W| / |W|, Frobenius norms; 0 for a dense layer
};

struct QuantizedCheckpoint {
  std::vector<QuantizedLayer> layers;
  std::int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

// Refuses to write over the input, into a folder that holds files (unless `force`), and to a disk
// without room. The new files are moved to their place once all of them are complete: if anything
// fails before that, `out` is as it was.
QuantizedCheckpoint quantize_checkpoint(Context& ctx, const Checkpoint& checkpoint,
                                        const QuantizeCheckpointArgs& args);

}  // namespace tessera::model
