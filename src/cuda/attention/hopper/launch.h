// The instances of the Hopper kernel, each compiled in its own file.
#pragma once

#include "cuda/attention/hopper/call.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

// Starts `blocks` blocks, which divide call.items among themselves. T is Half or BFloat16.
template <typename T, int dim>
void launch_hopper_kernel(const Launch& launch, const HopperCall& call, HopperMask mask,
                          int blocks);

}  // namespace tessera::cuda
