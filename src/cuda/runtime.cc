// The CUDA runtime behind core/cuda_runtime.h. All work goes to the stream it is given; nothing
// uses the default stream.
#include <cuda_runtime_api.h>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

// Ampere: the kernels use its asynchronous copies and bf16 arithmetic.
constexpr int kOldestMajor = 8;

// "cudaErrorNoDevice: no CUDA-capable device is detected"
std::string text_of(cudaError_t error) {
  return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
}

std::string version_text(int version) {  // 13000 -> "13.0"
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Why no device can be counted.
std::string why_not(cudaError_t error) {
  if (error == cudaErrorNoDevice) return "this machine has no NVIDIA GPU";
  if (error != cudaErrorInsufficientDriver) return "CUDA cannot start: " + text_of(error);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "this machine has no NVIDIA driver";
  }
  return fmt::format("the NVIDIA driver is for CUDA {}, but this build needs {}: update the driver",
                     version_text(driver), version_text(CUDART_VERSION));
}

struct Found {
  std::vector<DeviceInfo> usable;
  std::string status;
};

// cudaGetLastError() forgets an error that was only a question's answer, so that no later launch
// is blamed for it.
Found find_devices() {
  Found found;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    cudaGetLastError();
    found.status = why_not(error == cudaSuccess ? cudaErrorNoDevice : error);
    return found;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      cudaGetLastError();
      found.status += fmt::format("cuda:{} cannot be used: {}; ", i, text_of(error));
      continue;
    }
    const std::string capability = fmt::format("{}.{}", properties.major, properties.minor);
    if (properties.major < kOldestMajor) {
      found.status += fmt::format("cuda:{} ({}) has compute capability {}, but {}.0 is needed; ", i,
                                  properties.name, capability, kOldestMajor);
      continue;
    }
    found.usable.push_back({.device = Device::cuda(i),
                            .name = properties.name,
                            .capability = capability,
                            .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                            .compute_units = properties.multiProcessorCount});
  }
  found.status += fmt::format("{} of {} NVIDIA GPUs can be used", found.usable.size(), count);
  return found;
}

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

cudaMemcpyKind direction(Device to, Device from) {
  if (from.is_cpu()) return cudaMemcpyHostToDevice;
  return to.is_cpu() ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

}  // namespace

// ---- launch.h -----------------------------------------------------------------------------------

void check(cudaError_t error, const std::string& attempt) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  fail(ErrorCode::device, "{} failed: {}", attempt, text_of(error));
}

DeviceGuard::DeviceGuard(Device device) {
  int current = 0;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess && current != device.index) {
    error = cudaSetDevice(device.index);
    previous_ = current;
  }
  if (error != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorCode::device, "{} cannot be used ({}): {}", device, text_of(error), status());
  }
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

void Launch::check() const {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  if (error == cudaErrorNoKernelImageForDevice) {
    fail(ErrorCode::unsupported,
         "{}: this build has no kernels for this GPU: build with TESSERA_CUDA_ARCHITECTURES set to "
         "its compute capability",
         kernel_);
  }
  fail(ErrorCode::device, "launching {} failed: {}", kernel_, text_of(error));
}

// ---- cuda_runtime.h -----------------------------------------------------------------------------

std::vector<DeviceInfo> list_devices() { return find_devices().usable; }
std::string status() { return find_devices().status; }

void* allocate(std::int64_t bytes, Device device) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), fmt::format("asking {} for its free memory", device));
    fail(ErrorCode::out_of_memory,
         "{:.1f} MiB of memory were asked for on {}, of whose {:.1f} MiB {:.1f} are free",
         mebibytes(static_cast<std::size_t>(bytes)), device, mebibytes(total), mebibytes(free));
  }
  check(error, fmt::format("allocating {} bytes on {}", bytes, device));
  return data;
}

// Nothing can be done about a failure here: a broken context reports it at the next call.
void release(void* data, Device) noexcept { cudaFree(data); }

void* create_stream(Device device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  // Non-blocking: the legacy default stream does not order itself around it.
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
        fmt::format("making a stream on {}", device));
  return stream;
}

void destroy_stream(void* stream, Device) noexcept {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void synchronize(void* stream, Device device) {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
        fmt::format("waiting for the work on {}", device));
}

void copy(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes,
          void* stream) {
  const auto attempt = [&] {
    return fmt::format("copying {} bytes from {} to {}", bytes, from_device, to_device);
  };
  const DeviceGuard guard(to_device.is_cuda() ? to_device : from_device);
  // A CPU Context has no stream; nobody could wait for the copy later, so it is waited for here.
  const bool own_stream = stream != nullptr;
  const cudaStream_t on = own_stream ? static_cast<cudaStream_t>(stream) : cudaStreamPerThread;
  const cudaMemcpyKind kind = direction(to_device, from_device);
  cudaError_t error = cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, on);
  if (error == cudaSuccess && (!own_stream || kind != cudaMemcpyDeviceToDevice)) {
    error = cudaStreamSynchronize(on);
  }
  if (error != cudaSuccess) check(error, attempt());
}

}  // namespace tessera::cuda
