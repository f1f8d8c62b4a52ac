// What one CUDA Context owns besides its workspace. Made with the Context and ended with it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/backend_state.h"
#include "cuda/runtime/upload.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera::cuda {

// What kernels are chosen and sized by.
struct DeviceLimits {
  int capability;  // 90 for 9.0
  int multiprocessors;
  std::int64_t shared_bytes;  // the most that one block may ask for
};

// For tests and benchmarks: the kernel that linear() runs instead of the one it would choose
// (linear/choose.h); null: its own choice.
struct LinearKernel;
struct ForcedLinear {
  const LinearKernel* kernel = nullptr;
  bool where_it_can = false;  // leaves calls that the kernel cannot run to linear()'s own choice
};

class State final : public BackendState {
 public:
  // The threads must outlive it.
  State(Device device, ThreadPool& pool);
  ~State() override;

  cudaStream_t stream() const { return stream_; }
  const DeviceLimits& limits() const { return limits_; }
  Uploader& uploader() { return *uploader_; }
  // kCounters zeros on the device, with which the blocks of a kernel share out work. Kernels follow
  // each other on the stream, and each leaves zeros behind. Made by the first call.
  // The first are of who deals out work (hopper_work.cuh), the others of who waits for the last
  // part of something (attention/split.cuh).
  static constexpr int kWorkCounters = 2, kSlotCounters = 8192;
  static constexpr int kCounters = kWorkCounters + kSlotCounters;
  std::int32_t* counters();
  // Kernels that have been allowed all the shared memory there is (start_kernel.h).
  std::unordered_set<const void*>& large_kernels() { return large_kernels_; }
  // cuBLASLt's; null until the first product makes it (matmul.cc).
  std::shared_ptr<void>& cublas_handle() { return cublas_handle_; }
  // For tests: the kernel that attention() runs instead of the one it would choose
  // (attention_choose.h); empty: its own choice.
  const std::string& forced_attention() const { return forced_attention_; }
  void force_attention(std::string kernel) { forced_attention_ = std::move(kernel); }
  const ForcedLinear& forced_linear() const { return forced_linear_; }
  void force_linear(const ForcedLinear& forced) { forced_linear_ = forced; }

 private:
  Device device_;
  DeviceLimits limits_;
  cudaStream_t stream_ = nullptr;
  Buffer counters_;
  std::optional<Uploader> uploader_;  // as long as there is a stream
  std::unordered_set<const void*> large_kernels_;
  std::shared_ptr<void> cublas_handle_;
  std::string forced_attention_;
  ForcedLinear forced_linear_;
};

// Of a CUDA Context.
inline State& state_of(Context& ctx) { return static_cast<State&>(*ctx.backend_state()); }

}  // namespace tessera::cuda
