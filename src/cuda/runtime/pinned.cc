#include "cuda/runtime/pinned.h"

#include "core/fail.h"
#include "core/format.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

PinnedMemory make_pinned(std::int64_t bytes, Device device, std::string_view use) {
  const DeviceGuard guard(device);
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(ErrorCode::out_of_memory,
         "{} {} MiB of pinned host memory, which could not be allocated: free host memory, or "
         "raise what the process may lock (ulimit -l)",
         use, (bytes + (1 << 20) - 1) >> 20);
  }
  if (error != cudaSuccess) check(error, fmt::format("pinning {} bytes of host memory", bytes));
  return PinnedMemory(static_cast<char*>(memory));
}

OwnedEvent make_copy_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return OwnedEvent(event);
}

}  // namespace tessera::cuda
