// decode_layers() on a GPU. persistent_kernels.h lists the layers that it takes.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/decode/call.h"
#include "cuda/decode/persistent_kernels.h"
#include "tessera/context.h"
#include "tessera/decode_layers.h"

namespace tessera::cuda {

struct DecodeLayersPlan {
  const decode::PersistentKernel* kernel = nullptr;
  int blocks = 0;
  std::int64_t scratch_bytes = 0;
  decode::Call call{};  // without scratch
};

// Empty if no kernel takes the call.
std::optional<DecodeLayersPlan> plan_decode_layers(Context& ctx, const DecodeLayersArgs& args);
// Returns the kernel's name.
const char* decode_layers(Context& ctx, const DecodeLayersPlan& plan);

}  // namespace tessera::cuda
