// Everything an op needs beside its tensors: the device and its stream, threads, scratch memory and
// the trace. The first argument of every op. Two Contexts share nothing; one Context is used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/device.h"
#include "tessera/trace.h"

namespace tessera {

class ThreadPool;  // src/core/thread_pool.h
class Workspace;   // src/core/workspace.h

// How a packed weight meets its activations on the CPU. A GPU does as `linear` says, whatever is
// set.
enum class Activations : std::uint8_t {
  exact,  // weights are decoded to f32 and multiplied with f32 activations
  int8,   // activations are rounded to 8 bits per block of 32: integer dot products, faster. For
          // weights that prepare() has laid out in tiles; all others stay exact
};

struct ContextOptions {
  Device device{};
  int threads = 0;  // CPU threads, the calling one included; 0: one for each hardware thread
  Activations activations = Activations::exact;
  bool trace = false;
};

class Context {
 public:
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const { return device_; }
  int threads() const;
  // A cudaStream_t on a CUDA Context, null on the CPU.
  void* stream() const { return stream_; }
  // Waits for all work on the stream; on the CPU every op has finished when it returns.
  void synchronize();

  Activations activations() const { return activations_; }
  void set_activations(Activations activations) { activations_ = activations; }

  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

  // Scratch memory of the ops: what is held now, and the most that was ever in use.
  std::int64_t workspace_bytes() const;
  std::int64_t workspace_peak_bytes() const;

  // For ops and modules.
  ThreadPool& pool() { return *pool_; }
  Workspace& workspace() { return *workspace_; }
  // The handle of cuBLASLt, made by the first op that needs it (src/cuda/matmul.cc).
  std::shared_ptr<void>& cublas_handle() { return cublas_handle_; }
  // Cosines and sines for keys that are turned as they are read (src/cpu/rope_table.cc).
  std::shared_ptr<void>& rope_tables() { return rope_tables_; }

 private:
  Device device_;
  Activations activations_;
  void* stream_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Workspace> workspace_;
  std::shared_ptr<void> cublas_handle_, rope_tables_;
  Trace trace_;
};

}  // namespace tessera
