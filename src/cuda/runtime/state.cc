#include "cuda/runtime/state.h"

#include <algorithm>
#include <new>
#include <vector>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/require_zeros.h"

#ifndef TESSERA_CHECK_COUNTERS
#define TESSERA_CHECK_COUNTERS 0
#endif

namespace tessera::cuda {
namespace {

constexpr bool kCheckCounters = TESSERA_CHECK_COUNTERS;

DeviceLimits limits_of(Device device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.index),
        fmt::format("asking for the properties of {}", device));
  return {.capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
}

}  // namespace

// The counters are made here and not at their first use. That may be in a capture, which would
// record their zeroing.
State::State(Device device, ThreadPool& pool) : device_(device), limits_(limits_of(device)) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  // Non-blocking: the legacy default stream does not order itself around it.
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
        fmt::format("making a stream on {}", device));
  stream_.reset(stream);
  counters_ = make_counters(device, stream);
  uploader_.emplace(device, stream, pool);
}

bool State::checks_counters() { return kCheckCounters; }

std::int32_t* State::counters() {
  const Buffer& memory = captures() ? graph_->counters : counters_;
  auto* counters = memory.tensor().ptr<std::int32_t>();
  if (in_branch_) counters += kCounters;
  if constexpr (kCheckCounters) require_zeros(*this, counters, kCounters);
  return counters;
}

std::vector<Buffer>& State::side_scratch() {
  return captures() ? graph_->side_scratch : side_scratch_;
}

// After a fault on the GPU every call fails, and there is nothing left to free.
State::~State() {
  const DeviceGuard guard(device_, std::nothrow);
  cublas_handle_.reset();
  uploader_.reset();
  side_.reset();
  stream_.reset();
}

Buffer make_counters(Device device, cudaStream_t stream) {
  Buffer counters(DType::i32, {State::kStreams * State::kCounters}, device);
  const DeviceGuard guard(device);
  check(cudaMemsetAsync(counters.data(), 0, static_cast<std::size_t>(counters.bytes()), stream),
        fmt::format("setting counters on {} to zero", device));
  return counters;
}

void check_zeros(const Buffer& counters, cudaStream_t stream) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(counters.bytes() / 4));
  copy(values.data(), Device::cpu(), counters.data(), counters.device(), counters.bytes(), stream);
  const auto found =
      std::find_if(values.begin(), values.end(), [](std::int32_t value) { return value != 0; });
  if (found != values.end()) {
    fail(ErrorCode::device, "counter {} on {} is {}: the kernel that used it last left no zero",
         found - values.begin(), counters.device(), *found);
  }
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
void check_counters(BackendState& state) { static_cast<State&>(state).check_counters(); }

}  // namespace tessera::cuda
