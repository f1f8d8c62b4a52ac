// What the host side of every kernel needs: the right device, the Context's stream, and errors.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>

#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera::cuda {

// Throws Error (device) "<attempt> failed: <CUDA's name and text>" unless `error` is success;
// DeviceLost where the error ends GPU work (errors.h).
void check(cudaError_t error, const std::string& attempt);

// Makes a device the calling thread's current one until the object ends.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  // For destructors: where the device cannot be had, they go on without.
  DeviceGuard(Device device, std::nothrow_t) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  cudaError_t make_current(Device device) noexcept;

  int previous_ = -1;  // none: it was current already
};

// A launch on the Context's device and stream:
//
//   Launch launch(ctx, "softmax");
//   softmax_rows<<<launch.blocks(rows), kThreads, 0, launch.stream()>>>(...);
//   launch.check();
class Launch {
 public:
  Launch(Context& ctx, const char* kernel)
      : guard_(ctx.device()), stream_(static_cast<cudaStream_t>(ctx.stream())), kernel_(kernel) {}

  cudaStream_t stream() const { return stream_; }
  // One block for each item, as far as the grid's 31 bits go; a kernel steps over the rest.
  static unsigned blocks(std::int64_t items) {
    return static_cast<unsigned>(std::min<std::int64_t>(items, 0x7fffffff));
  }
  // Throws if the launch was refused. What goes wrong inside the kernel shows at the next wait.
  void check() const;

 private:
  DeviceGuard guard_;
  cudaStream_t stream_;
  const char* kernel_;
};

}  // namespace tessera::cuda
