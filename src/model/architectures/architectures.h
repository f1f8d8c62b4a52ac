// The architectures, one file each. Each reads its weights by the names that transformers gives
// them, and computes what transformers computes.
#pragma once

#include <memory>
#include <optional>

#include "model/checkpoint/weight_source.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::model {

std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, DType dtype, WeightSource& weights);
// llama, mistral, qwen2, qwen3
std::unique_ptr<Model> make_llama(const ModelConfig& config, DType dtype, WeightSource& weights);

// The one that the config asks for; load_model.cc.
std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, WeightSource& weights);
// What a model computes in: as asked, else f32 on the CPU and the checkpoint's own on a GPU.
DType model_dtype(const Context& ctx, const ModelConfig& config, std::optional<DType> asked);

}  // namespace tessera::model
