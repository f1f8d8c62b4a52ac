// A model of any shape whose weights are noise, made on its device: for benchmarks, which measure
// only speed and so need no file of many gigabytes.
#pragma once

#include <memory>
#include <optional>

#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/quant.h"

namespace tessera::model {

struct RandomModelOptions {
  std::optional<DType> dtype{};             // as LoadOptions::dtype
  std::optional<QuantizeOptions> pack{};    // of the linear layers; not given: they are dense
  Communicator* tensor_parallel = nullptr;  // as LoadOptions has them
  Communicator* context_parallel = nullptr;
  bool fuse_layers = true;
};

// The same shape and options give the same weights on every device. Dense weights have the dtype
// that a loaded checkpoint of this config would have: config.stored_dtype on the CPU, the model's
// dtype on a GPU.
std::unique_ptr<Model> make_random_model(Context& ctx, const ModelConfig& config,
                                         const RandomModelOptions& options = {});

}  // namespace tessera::model
