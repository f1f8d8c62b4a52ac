// What the core asks of the CUDA runtime. A CUDA build defines these in src/cuda/runtime.cc; any
// other build in src/core/cuda_absent.cc, where all but the queries throw.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera {
class ThreadPool;  // core/thread_pool.h
}

namespace tessera::cuda {

// What a CUDA Context owns beside its workspace (src/cuda/state.h).
class State;
std::shared_ptr<State> make_state(Device device, ThreadPool& pool);
void* stream_of(const State& state);

std::vector<DeviceInfo> list_devices();  // never throws: no driver, no devices
CudaInfo describe();                     // never throws
DeviceMemory memory(Device device);

void* allocate(std::int64_t bytes, Device device);
void release(void* data, Device device) noexcept;
void synchronize(void* stream, Device device);

// From the host to a device, on the Context's stream. Returns when the host memory has been read;
// does not wait for the device unless all pinned memory is on its way (src/cuda/upload.h).
void upload(State& state, void* to, const void* from, std::int64_t bytes);
// Between host and device, or within a device, on a Context's stream or, where that is null, on one
// that is waited for. Returns when host memory has been read or written.
void copy(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes,
          void* stream);

}  // namespace tessera::cuda
