#include "cuda/runtime/state.h"

#include <new>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

DeviceLimits limits_of(Device device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.index),
        fmt::format("asking for the properties of {}", device));
  return {.capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
}

}  // namespace

State::State(Device device, ThreadPool& pool) : device_(device), limits_(limits_of(device)) {
  const DeviceGuard guard(device);
  // Non-blocking: the legacy default stream does not order itself around it.
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
        fmt::format("making a stream on {}", device));
  uploader_.emplace(device, stream_, pool);
}

std::int32_t* State::counters() {
  if (counters_.data() == nullptr) {
    counters_ = Buffer(kCounters * std::int64_t{sizeof(std::int32_t)}, device_);
    const DeviceGuard guard(device_);
    check(
        cudaMemsetAsync(counters_.data(), 0, static_cast<std::size_t>(counters_.bytes()), stream_),
        fmt::format("setting counters on {} to zero", device_));
  }
  return static_cast<std::int32_t*>(counters_.data());
}

// After a fault on the GPU every call fails, and there is nothing left to free.
State::~State() {
  const DeviceGuard guard(device_, std::nothrow);
  cublas_handle_.reset();
  uploader_.reset();
  cudaStreamDestroy(stream_);
}

std::unique_ptr<BackendState> make_state(Device device, ThreadPool& pool) {
  const DeviceGuard guard(device);
  check_not_lost(fmt::format("using {}", device));
  for (const DeviceInfo& info : list_devices()) {
    if (info.device == device && !info.usable()) {
      fail(ErrorCode::unsupported, "{} cannot be used: {}", device, info.unusable);
    }
  }
  return std::make_unique<State>(device, pool);
}
void* stream_of(const BackendState& state) { return static_cast<const State&>(state).stream(); }
void upload(BackendState& state, void* to, const void* from, std::int64_t bytes) {
  static_cast<State&>(state).uploader().copy(to, from, bytes);
}

}  // namespace tessera::cuda
