// The CUDA runtime for core/cuda_runtime.h. All work goes to the given stream; nothing uses the
// default stream.
#include <cuda_runtime_api.h>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

cudaMemcpyKind direction(Device to, Device from) {
  if (from.is_cpu()) return cudaMemcpyHostToDevice;
  return to.is_cpu() ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

}  // namespace

// ---- launch.h -----------------------------------------------------------------------------------

DeviceGuard::DeviceGuard(Device device) {
  if (const cudaError_t error = make_current(device); error != cudaSuccess) {
    cudaGetLastError();
    if (ends_gpu_work(error)) check(error, fmt::format("using {}", device));
    fail(ErrorCode::device, "{} cannot be used ({}): {}", device, text_of(error),
         describe().status);
  }
}

DeviceGuard::DeviceGuard(Device device, std::nothrow_t) noexcept { make_current(device); }

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

cudaError_t DeviceGuard::make_current(Device device) noexcept {
  int current = 0;
  const cudaError_t error = cudaGetDevice(&current);
  if (error != cudaSuccess || current == device.index) return error;
  previous_ = current;
  return cudaSetDevice(device.index);
}

// ---- cuda_runtime.h -----------------------------------------------------------------------------

DeviceMemory memory(Device device) {
  const DeviceGuard guard(device);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), fmt::format("asking {} for its free memory", device));
  return {.free = static_cast<std::int64_t>(free), .total = static_cast<std::int64_t>(total)};
}

void* allocate(std::int64_t bytes, Device device) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DeviceMemory now = memory(device);
    fail(ErrorCode::out_of_memory,
         "{:.1f} MiB of memory were asked for on {}, of whose {:.1f} MiB {:.1f} are free",
         mebibytes(bytes), device, mebibytes(now.total), mebibytes(now.free));
  }
  check(error, fmt::format("allocating {} bytes on {}", bytes, device));
  return data;
}

// Nothing can be done about a failure here: a broken context reports it at the next call.
void release(void* data, Device) noexcept { cudaFree(data); }

void synchronize(void* stream, Device device) {
  const cudaError_t error = cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) check(error, fmt::format("waiting for the work on {}", device));
}

void copy(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes,
          void* stream) {
  const auto attempt = [&] {
    return fmt::format("copying {} bytes from {} to {}", bytes, from_device, to_device);
  };
  const DeviceGuard guard(to_device.is_cuda() ? to_device : from_device);
  // A CPU Context has no stream on which to wait for the copy later, so this waits for it.
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
