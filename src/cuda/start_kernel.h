// The one line that hands a kernel to the GPU. It has a file of its own because tests on machines
// without a GPU put another in its place (tests/emulated).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

namespace tessera::cuda {

// As kernel<<<grid, block, shared_bytes, stream>>>(args...). Errors are left to
// cudaGetLastError().
template <typename... Params>
void start_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, std::type_identity_t<Params>... args) {
  void* pointers[] = {&args...};
  cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes,
                   stream);
}

}  // namespace tessera::cuda
