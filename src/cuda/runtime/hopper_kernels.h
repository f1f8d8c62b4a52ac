// Whether the kernels that only Hopper runs (attention/hopper, linear/hopper) can run.
#pragma once

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// Is this a GPU of compute capability 9.0, and the build one for it (90a)?
bool has_hopper_kernels(const DeviceLimits& gpu);

}  // namespace tessera::cuda
