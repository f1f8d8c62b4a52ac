// The one line that hands a kernel to the GPU. It has a file of its own because tests on machines
// without a GPU put another in its place (tests/emulated).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// The shared memory that a kernel may use without being allowed more.
inline constexpr std::size_t kUsualSharedBytes = 48 << 10;

// Allows a kernel all the shared memory there is. Then it does not matter which launch comes first,
// and one call is enough. A call that failed is made again at the next launch.
inline cudaError_t allow_shared(State& state, const void* kernel) {
  if (state.large_kernels().count(kernel) > 0) return cudaSuccess;
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  const auto most =
      state.limits().shared_bytes - static_cast<std::int64_t>(attributes.sharedSizeBytes);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(most));
  if (error == cudaSuccess) state.large_kernels().insert(kernel);
  return error;
}

// As kernel<<<grid, block, shared_bytes, stream>>>(args...). Returns what became of this launch;
// cudaGetLastError() may tell of somebody else's. `overlaps` asks for programmatic dependent
// launch; `cluster` is a divisor of the blocks, at most 8.
template <typename... Params>
[[nodiscard]] cudaError_t start_kernel(State& state, void (*kernel)(Params...), dim3 grid,
                                       dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                                       bool overlaps, int cluster,
                                       std::type_identity_t<Params>... args) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kUsualSharedBytes) {
    if (const cudaError_t error = allow_shared(state, entry); error != cudaSuccess) return error;
  }
  void* pointers[] = {&args...};
  if (!overlaps && cluster == 1) {
    return cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = overlaps ? 1 : 0;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster == 1 ? 1 : 2;
  return cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace tessera::cuda
