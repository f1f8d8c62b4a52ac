// The one line that hands a kernel to the GPU. It has a file of its own because tests on machines
// without a GPU put another in its place (tests/emulated).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

namespace tessera::cuda {

// What a kernel gets without asking for more.
inline constexpr std::size_t kUsualSharedBytes = 48 << 10;

// As kernel<<<grid, block, shared_bytes, stream>>>(args...). Errors are left to
// cudaGetLastError().
template <typename... Params>
void start_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, std::type_identity_t<Params>... args) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kUsualSharedBytes) {
    cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  void* pointers[] = {&args...};
  cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
}

}  // namespace tessera::cuda
