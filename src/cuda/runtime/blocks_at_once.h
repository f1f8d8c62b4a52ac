// How many blocks may wait for each other. It has its own file because tests on machines without a
// GPU replace it (tests/emulated).
#pragma once

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// One for each multiprocessor. They run at the same time if their launch asks for it
// (Grid::all_at_once); otherwise another kernel may keep some of them from starting.
inline int blocks_at_once(const DeviceLimits& limits) { return limits.multiprocessors; }

}  // namespace tessera::cuda
