// The GPUs of this machine, and what this build can do on them.
#include <cuda_runtime_api.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "cuda/runtime/architectures.h"
#include "cuda/runtime/driver_version.h"
#include "cuda/runtime/errors.h"

#ifndef TESSERA_CUDA_ARCHITECTURES
#error "TESSERA_CUDA_ARCHITECTURES is the list of architectures, from src/cuda/CMakeLists.txt"
#endif

namespace tessera::cuda {
namespace {

std::string version_text(int version) {  // 13000 -> "13.0"
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// 0 if there is none.
int driver_cuda_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

// Why no device can be counted.
std::string why_none(cudaError_t error) {
  if (error == cudaErrorNoDevice) {
    return "this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it";
  }
  if (error != cudaErrorInsufficientDriver) return "CUDA cannot start: " + text_of(error);
  const int driver = driver_cuda_version();
  if (driver == 0) return "this machine has no NVIDIA driver";
  // Within one major version new programs run on old drivers.
  return fmt::format(
      "the NVIDIA driver is for CUDA {}, but this build needs one for {}.0 or later: update the "
      "driver",
      version_text(driver), CUDART_VERSION / 1000);
}

DeviceInfo describe_device(int index) {
  DeviceInfo info{.device = Device::cuda(index)};
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    cudaGetLastError();
    info.unusable = text_of(error);
    return info;
  }
  info.name = properties.name;
  info.capability = fmt::format("{}.{}", properties.major, properties.minor);
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.compute_units = properties.multiProcessorCount;
  info.unusable = why_no_kernels(properties.major, properties.minor, TESSERA_CUDA_ARCHITECTURES);
  return info;
}

struct Found {
  std::vector<DeviceInfo> devices{};
  std::string status{};
};

// cudaGetLastError() clears an error that was only an answer, so that no later launch is blamed for
// it.
Found find_devices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {.status = why_none(error == cudaSuccess ? cudaErrorNoDevice : error)};
  }
  Found found;
  int usable = 0;
  std::string reasons;
  for (int i = 0; i < count; ++i) {
    const DeviceInfo& info = found.devices.emplace_back(describe_device(i));
    usable += info.usable() ? 1 : 0;
    if (!info.usable()) reasons += fmt::format("; cuda:{} cannot: {}", i, info.unusable);
  }
  found.status = fmt::format("{} of {} NVIDIA GPUs can be used{}", usable, count, reasons);
  return found;
}

}  // namespace

std::vector<DeviceInfo> list_devices() { return find_devices().devices; }

CudaInfo describe() {
  CudaInfo info{.toolkit = version_text(CUDART_VERSION),
                .architectures = TESSERA_CUDA_ARCHITECTURES,
                .status = find_devices().status};
  if (const int driver = driver_cuda_version(); driver != 0) {
    info.driver_cuda = version_text(driver);
    std::ifstream file("/proc/driver/nvidia/version");
    info.driver = driver_version_in({std::istreambuf_iterator<char>(file), {}});
  }
  return info;
}

}  // namespace tessera::cuda
