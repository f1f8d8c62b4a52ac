// The architectures, one file each. Each reads its weights by the names that transformers gives
// them, and computes what transformers computes.
#pragma once

#include <memory>

#include "model/weight_source.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::model {

std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, DType dtype, WeightSource& weights);
// llama, mistral, qwen2, qwen3
std::unique_ptr<Model> make_llama(const ModelConfig& config, DType dtype, WeightSource& weights);

}  // namespace tessera::model
