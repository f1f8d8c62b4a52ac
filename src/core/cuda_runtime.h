// What the core asks of the CUDA runtime. A CUDA build defines these in src/cuda/runtime.cc; any
// other build in src/core/cuda_absent.cc, where all but the queries throw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera::cuda {

std::vector<DeviceInfo> list_devices();  // never throws: no driver, no devices
std::string status();                    // one sentence on what was found

void* allocate(std::int64_t bytes, Device device);
void release(void* data, Device device) noexcept;

void* create_stream(Device device);
void destroy_stream(void* stream, Device device) noexcept;
void synchronize(void* stream, Device device);

// Between host and device, or within a device. Returns when host memory has been read or written.
void copy(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes,
          void* stream);

}  // namespace tessera::cuda
