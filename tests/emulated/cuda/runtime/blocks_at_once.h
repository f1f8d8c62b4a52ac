// Replaces src/cuda/runtime/blocks_at_once.h: blocks run one after the other.
#pragma once

#include "cuda/runtime/state.h"

namespace tessera::cuda {

inline int blocks_at_once(const DeviceLimits& /*limits*/) { return 1; }

}  // namespace tessera::cuda
