// The one line that starts a kernel on the GPU. It has its own file because tests on machines
// without a GPU replace it (tests/emulated).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/runtime/state.h"

namespace tessera::cuda {

// The shared memory that a kernel may use without asking for more.
inline constexpr std::size_t kUsualSharedBytes = 48 << 10;

// Allows a kernel all shared memory of a block. Then one call is enough, whichever launch comes
// first. A call that failed is repeated at the next launch.
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

// The options of a launch besides its sizes (launch.h: Grid).
struct LaunchWishes {
  bool overlaps = false;     // programmatic dependent launch
  int cluster = 1;           // a divisor of the blocks, at most 8
  bool all_at_once = false;  // a cooperative launch; not together with the others
};

// Like kernel<<<grid, block, shared_bytes, stream>>>(args...). Returns the error of this launch;
// cudaGetLastError() may report another call's.
template <typename... Params>
[[nodiscard]] cudaError_t start_kernel(State& state, void (*kernel)(Params...), dim3 grid,
                                       dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                                       const LaunchWishes& wishes,
                                       std::type_identity_t<Params>... args) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kUsualSharedBytes) {
    if (const cudaError_t error = allow_shared(state, entry); error != cudaSuccess) return error;
  }
  void* pointers[] = {&args...};
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (wishes.overlaps) {
    cudaLaunchAttribute& overlaps = attributes[count++];
    overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlaps.val.programmaticStreamSerializationAllowed = 1;
  }
  if (wishes.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(wishes.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (wishes.all_at_once) {
    cudaLaunchAttribute& all_at_once = attributes[count++];
    all_at_once.id = cudaLaunchAttributeCooperative;
    all_at_once.val.cooperative = 1;
  }
  if (count == 0) return cudaLaunchKernel(entry, grid, block, pointers, shared_bytes, stream);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelExC(&config, entry, pointers);
}

}  // namespace tessera::cuda
