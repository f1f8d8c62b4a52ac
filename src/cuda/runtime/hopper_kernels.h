// Whether the kernels for Hopper (attention/hopper, linear/hopper) can run.
#pragma once

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// Whether this GPU has compute capability 9.0 and the build has kernels for it (90a).
bool has_hopper_kernels(const DeviceLimits& gpu);

}  // namespace tessera::cuda
