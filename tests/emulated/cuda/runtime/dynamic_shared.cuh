// Replaces src/cuda/runtime/dynamic_shared.cuh.
#pragma once

#include "emulated/simt.h"

namespace tessera::cuda {

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(emulated::dynamic_shared_memory());
}

}  // namespace tessera::cuda
