// The names of ops, for tools that watch a GPU: NVTX ranges for Nsight, and a listener for the
// kernel timer. core/cuda_runtime.h declares begin_op() and end_op(), which ops call.
//
// With no tool attached a range costs a few nanoseconds: the header-only library finds that nobody
// listens, once, and returns.
#pragma once

namespace tessera::cuda {

// Hears of every op of its thread.
class OpListener {
 public:
  OpListener() = default;
  virtual ~OpListener() = default;
  OpListener(const OpListener&) = delete;
  OpListener& operator=(const OpListener&) = delete;

  virtual void begin(const char* op) noexcept = 0;
  virtual void end() noexcept = 0;
};

// Of the calling thread, from now on; null: nobody. Returns the one before.
OpListener* set_op_listener(OpListener* listener) noexcept;

}  // namespace tessera::cuda
