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
// cudaGetLastError(). `overlaps` asks for programmatic dependent launch.
template <typename... Params>
void start_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  cudaStream_t stream, bool overlaps, std::type_identity_t<Params>... args) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kUsualSharedBytes) {
    cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  void* pointers[] = {&args...};
  if (!overlaps) {
    cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
    return;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace tessera::cuda
