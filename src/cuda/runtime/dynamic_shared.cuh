// The shared memory whose size a launch states. All uses in a kernel name the same bytes.
#pragma once

namespace tessera::cuda {

template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

}  // namespace tessera::cuda
