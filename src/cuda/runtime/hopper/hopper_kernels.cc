#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {

bool has_hopper_kernels(const DeviceLimits& gpu) {
#ifdef TESSERA_SM90A
  return gpu.capability == 90;
#else
  return static_cast<void>(gpu), false;
#endif
}

}  // namespace tessera::cuda
