// How many blocks may wait for each other. It has a file of its own because tests on machines
// without a GPU put another in its place (tests/emulated).
#pragma once

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// One for each multiprocessor: all of them run at the same time, because kernels ahead end.
inline int blocks_at_once(const DeviceLimits& limits) { return limits.multiprocessors; }

}  // namespace tessera::cuda
