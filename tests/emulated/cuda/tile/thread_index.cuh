// In the place of src/cuda/tile/thread_index.cuh.
#pragma once

#include "emulated/simt.h"

namespace tessera::cuda {

inline int fresh_thread_index() { return static_cast<int>(emulated::current_thread.thread.x); }

}  // namespace tessera::cuda
