// The model that a benchmark runs: a checkpoint, or random weights in the shape of a config.json.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::bench {

struct ModelChoice {
  std::string model, shape;  // exactly one is given
  std::string dtype;         // of activations; empty: the default
  bool fuse_layers = true;

  const std::string& name() const { return model.empty() ? shape : model; }
};

// --model, --shape, --dtype and --fusion.
void add_model_options(CLI::App& app, ModelChoice& choice);

// `weights`: "dense", "f16", "int4:32" and the like, as the help of --weights says.
std::unique_ptr<Model> make_model(Context& ctx, const ModelChoice& choice,
                                  const std::string& weights);

inline constexpr const char* kWeightsHelp =
    "dense; f32, f16 or bf16 for dense weights (on a GPU also activations) of this dtype; or a "
    "packed format such as int4 or int4:32 (groups of 32)";

}  // namespace tessera::bench
