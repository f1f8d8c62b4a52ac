// The state that a CUDA Context owns besides its workspace. It lives as long as the Context.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "core/backend_state.h"
#include "core/side_stream.h"
#include "cuda/runtime/owned.h"
#include "cuda/runtime/upload.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera::cuda {

struct AttentionKernel;  // attention/kernel.h
struct GraphMemory;      // runtime/capture.h
struct LinearKernel;     // linear/kernels.h

// The limits by which kernels are chosen and sized.
struct DeviceLimits {
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  std::int64_t shared_bytes = 0;  // the most that one block may use
};

// For tests and benchmarks: the kernel that linear layers use instead of the usual choice; null:
// the usual choice. `where_it_can`: calls that it cannot run are left to the usual choice.
struct ForcedLinear {
  const LinearKernel* kernel = nullptr;
  bool where_it_can = false;
};

// State::kCounters zeros for each stream of a Context, set on this one.
Buffer make_counters(Device device, cudaStream_t stream);
// Waits for the stream, then throws Error if one of them is not zero.
void check_zeros(const Buffer& counters, cudaStream_t stream);

class State final : public BackendState {
 public:
  // The pool must outlive the State.
  State(Device device, ThreadPool& pool);
  ~State() override;

  // The stream to which work goes now: the Context's own, or a branch's.
  cudaStream_t stream() const {
    return in_branch_ ? static_cast<cudaStream_t>(side_->stream()) : stream_.get();
  }
  const DeviceLimits& limits() const { return limits_; }
  Uploader& uploader() { return *uploader_; }
  // kCounters zeros on the device, with which the blocks of a kernel divide work. Kernels run one
  // after the other on the stream, and each resets its counters to zero. Kernels of a captured
  // graph may run at the same time as others, so a graph has its own counters, which this returns
  // during its capture. The first counters deal out work (attention/hopper/work.cuh), the others
  // detect the last block to finish its part (attention/portable/split.cuh).
  static constexpr int kWorkCounters = 2, kSlotCounters = 8192;
  static constexpr int kCounters = kWorkCounters + kSlotCounters;
  // A branch's counters follow the Context's own.
  static constexpr int kStreams = 2;
  std::int32_t* counters();
  // For captures: counters() and side_scratch() are a graph's from now on; null: the Context's.
  void use_memory_of(GraphMemory* graph) { graph_ = graph; }
  bool captures() const { return graph_ != nullptr; }
  // For branches (core/branch.h): a second stream, null until the first branch makes it, and
  // scratch memory. `in_branch`: ops use these, and the branch's counters.
  std::unique_ptr<SideStream>& side() { return side_; }
  std::vector<Buffer>& side_scratch();
  void set_in_branch(bool in_branch) { in_branch_ = in_branch; }
  void check_counters() const { check_zeros(counters_, stream()); }
  // Whether every call of counters() checks them on the stream: in builds with
  // TESSERA_CHECK_COUNTERS (require_zeros.h).
  static bool checks_counters();
  // Kernels that have been allowed all shared memory (start_kernel.h).
  std::unordered_set<const void*>& large_kernels() { return large_kernels_; }
  // cuBLASLt's; null until the first product makes it (matmul.cc).
  std::shared_ptr<void>& cublas_handle() { return cublas_handle_; }
  // For tests and benchmarks: the kernel that attention() runs instead of the usual choice
  // (attention/choose.h); null: the usual choice.
  const AttentionKernel* forced_attention() const { return forced_attention_; }
  void force_attention(const AttentionKernel* kernel) { forced_attention_ = kernel; }
  const ForcedLinear& forced_linear() const { return forced_linear_; }
  void force_linear(const ForcedLinear& forced) { forced_linear_ = forced; }

 private:
  Device device_;
  DeviceLimits limits_;
  OwnedStream stream_;
  Buffer counters_;
  GraphMemory* graph_ = nullptr;
  std::unique_ptr<SideStream> side_;
  std::vector<Buffer> side_scratch_;
  bool in_branch_ = false;
  std::optional<Uploader> uploader_;  // as long as there is a stream
  std::unordered_set<const void*> large_kernels_;
  std::shared_ptr<void> cublas_handle_;
  const AttentionKernel* forced_attention_ = nullptr;
  ForcedLinear forced_linear_;
};

// The State of a CUDA Context.
inline State& state_of(Context& ctx) { return static_cast<State&>(*ctx.backend_state()); }

}  // namespace tessera::cuda
