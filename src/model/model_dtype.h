#pragma once

#include <optional>

#include "tessera/context.h"
#include "tessera/model_config.h"

namespace tessera::model {

// The dtype that a model computes in: as asked, else f32 on the CPU and the checkpoint's on a GPU.
DType model_dtype(const Context& ctx, const ModelConfig& config, std::optional<DType> asked);

}  // namespace tessera::model
