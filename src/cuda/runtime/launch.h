// Launches for the host side of every kernel: the right device, the Context's stream, and errors.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string_view>
#include <type_traits>

#include "cuda/runtime/start_kernel.h"
#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera::cuda {

// Throws Error (device) "<attempt> failed: <CUDA's name and text>" unless `error` is success;
// DeviceLost if the error ends GPU work (errors.h).
void check(cudaError_t error, std::string_view attempt);

// Makes a device the calling thread's current one until the object ends.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  // For destructors, which go on without the device if it cannot be used.
  DeviceGuard(Device device, std::nothrow_t) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  cudaError_t make_current(Device device) noexcept;

  int previous_ = -1;  // none: it was current already
};

struct Grid {
  std::int64_t blocks;  // one for each item; see Launch
  dim3 threads;
  int shared_bytes = 0;
  bool overlaps = false;  // may start before the kernel before it ends
  int cluster = 1;        // neighbouring blocks that start together (tile/cluster.cuh)
  // All blocks start together, once there is room for all, so they may wait for each other. There
  // are no more than fit on the GPU (blocks_at_once.h). Not together with overlaps or cluster.
  bool all_at_once = false;
};

// Launches on the Context's device and stream:
//
//   Launch launch(ctx, "softmax");
//   launch(softmax_rows<T>, {.blocks = rows, .threads = kThreads}, x, out);
//
// Throws if the launch is refused. Errors inside the kernel are reported at the next wait.
class Launch {
 public:
  Launch(Context& ctx, const char* kernel)
      : guard_(ctx.device()),
        state_(state_of(ctx)),
        stream_(static_cast<cudaStream_t>(ctx.stream())),
        kernel_(kernel) {}

  // A grid has at most 2^31 - 1 blocks. If more are asked for, each block of the kernel loops.
  template <typename... Params>
  void operator()(void (*kernel)(Params...), const Grid& grid,
                  const std::type_identity_t<Params>&... args) const {
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(grid.blocks, 0x7fffffff));
    check(start_kernel(
        state_, kernel, dim3(blocks), grid.threads, static_cast<std::size_t>(grid.shared_bytes),
        stream_,
        {.overlaps = grid.overlaps, .cluster = grid.cluster, .all_at_once = grid.all_at_once},
        args...));
  }

 private:
  void check(cudaError_t error) const;

  DeviceGuard guard_;
  State& state_;
  cudaStream_t stream_;
  const char* kernel_;
};

}  // namespace tessera::cuda
