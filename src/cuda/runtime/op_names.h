// The names of ops, for tools that watch a GPU: NVTX ranges for Nsight, and a listener for the
// kernel timer. core/cuda_runtime.h declares begin_op() and end_op(), which ops call.
//
// With no tool attached a range costs a few nanoseconds: the header-only library finds out once
// that no tool listens, and then returns.
#pragma once

namespace tessera::cuda {

// Is called for every op of its thread.
class OpListener {
 public:
  OpListener() = default;
  virtual ~OpListener() = default;
  OpListener(const OpListener&) = delete;
  OpListener& operator=(const OpListener&) = delete;

  virtual void begin(const char* op) noexcept = 0;
  virtual void end() noexcept = 0;
};

// Sets the listener of the calling thread; null: none. Returns the previous one.
OpListener* set_op_listener(OpListener* listener) noexcept;

}  // namespace tessera::cuda
