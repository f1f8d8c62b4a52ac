// Replaces src/cuda/tile/thread_index.cuh.
#pragma once

#include "emulated/simt.h"

namespace tessera::cuda {

inline int fresh_thread_index() { return static_cast<int>(emulated::current_thread.thread.x); }

inline int fresh_block_index() { return static_cast<int>(blockIdx.x); }

}  // namespace tessera::cuda
