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
// and one call is enough.
inline void allow_shared(State& state, const void* kernel) {
  if (!state.large_kernels().insert(kernel).second) return;
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return;
  const auto most =
      state.limits().shared_bytes - static_cast<std::int64_t>(attributes.sharedSizeBytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most));
}

// As kernel<<<grid, block, shared_bytes, stream>>>(args...). Errors are left to
// cudaGetLastError(). `overlaps` asks for programmatic dependent launch; `cluster` is a divisor of
// the blocks, at most 8.
template <typename... Params>
void start_kernel(State& state, void (*kernel)(Params...), dim3 grid, dim3 block,
                  std::size_t shared_bytes, cudaStream_t stream, bool overlaps, int cluster,
                  std::type_identity_t<Params>... args) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kUsualSharedBytes) allow_shared(state, entry);
  void* pointers[] = {&args...};
  if (!overlaps && cluster == 1) {
    cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
    return;
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
  cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace tessera::cuda
