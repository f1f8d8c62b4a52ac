// What the core needs from the CUDA runtime. A CUDA build defines these functions in
// src/cuda/runtime, any other build in src/core/cuda_absent.cc, where all but the queries throw.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "tessera/device.h"

namespace tessera {
class Buffer;
class BackendDownload;  // core/download.h
class BackendGraph;     // core/captured_graph.h
class BackendState;     // core/backend_state.h
class Context;
class ThreadPool;  // core/thread_pool.h
}  // namespace tessera

namespace tessera::cuda {

// What a CUDA Context owns besides its workspace (src/cuda/runtime/state.h).
std::unique_ptr<BackendState> make_state(Device device, ThreadPool& pool);
void* stream_of(const BackendState& state);

std::vector<DeviceInfo> list_devices();  // never throws: no driver, no devices
CudaInfo describe();                     // never throws
DeviceMemory memory(Device device);

void* allocate(std::int64_t bytes, Device device);
void release(void* data, Device device) noexcept;
void synchronize(void* stream, Device device);

// From the host to a device, on the Context's stream. Returns once the host memory has been read.
// Waits for the device only if all pinned memory is in use (src/cuda/runtime/upload.h).
void upload(BackendState& state, void* to, const void* from, std::int64_t bytes);
// Between host and device, or within a device, on a Context's stream. With a null stream, uses its
// own and waits for it. Returns once host memory has been read or written.
void copy(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes,
          void* stream);

// The CUDA side of Download (core/download.h).
std::unique_ptr<BackendDownload> make_download(Device device, std::int64_t max_bytes);

// Names the work of a thread from begin_op() to end_op() for profilers: as an NVTX range, and for
// the kernel timer (src/cuda/runtime/op_names.h). `op` must live until the program ends.
void begin_op(const char* op) noexcept;
void end_op() noexcept;

// The CUDA side of capture() (core/captured_graph.h).
std::unique_ptr<BackendGraph> capture(Context& ctx, FunctionRef<void()> work,
                                      const BackendGraph* same_memory);

// The CUDA side of Branch (core/branch.h): a second stream of the Context, and scratch memory for
// the ops on it.
struct BranchStream {
  void* stream;
  std::vector<Buffer>* scratch;
};
BranchStream begin_branch(Context& ctx);
void end_branch(Context& ctx);
void join_branch(Context& ctx);

// For tests. Waits for the Context's work, then throws Error if a kernel has left anything but
// zeros in the counters; the next kernel expects zeros (src/cuda/runtime/state.h).
void check_counters(BackendState& state);

}  // namespace tessera::cuda
