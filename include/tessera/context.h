// Everything an op needs beside its tensors: the device and its stream, threads, scratch memory and
// the trace. The first argument of every op. Two Contexts share nothing; one Context is used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/device.h"
#include "tessera/trace.h"

namespace tessera {

class ThreadPool;  // src/core/thread_pool.h
class Workspace;   // src/core/workspace.h
namespace cpu {
struct RopeTables;  // src/cpu/rope_table.cc
}
namespace cuda {
class State;  // src/cuda/state.h
}

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
  // What loading a model and making a cache take for the device's memory; not given:
  // device_memory(). For programs that leave some of it to others, and for tests.
  std::function<DeviceMemory(Device)> memory{};
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
  // Empty; or, after a fault in a kernel by which the driver gave up all GPU work of this process,
  // what failed first. Every op on this Context then throws this sentence at once.
  const std::string& lost() const { return lost_; }

  Activations activations() const { return activations_; }
  void set_activations(Activations activations) { activations_ = activations; }

  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

  // What the device has, and has free: as ContextOptions say.
  DeviceMemory memory() const;
  // Scratch memory of the ops: what is held now, and the most that was ever in use.
  std::int64_t workspace_bytes() const;
  std::int64_t workspace_peak_bytes() const;

  // For ops and modules.
  ThreadPool& pool() { return *pool_; }
  Workspace& workspace() { return *workspace_; }
  // Of a CUDA Context alone.
  cuda::State& cuda_state() { return *cuda_state_; }
  // Cosines and sines for keys that are turned as they are read; null until the first are made.
  std::shared_ptr<cpu::RopeTables>& rope_tables() { return rope_tables_; }
  // Throws lost(), if there is something to throw.
  void require_not_lost() const;
  // Ends the Context, because of this unless it has ended before, and throws lost().
  [[noreturn]] void lose(const std::string& what_failed);

 private:
  Device device_;
  Activations activations_;
  void* stream_ = nullptr;
  std::function<DeviceMemory(Device)> memory_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Workspace> workspace_;
  std::shared_ptr<cuda::State> cuda_state_;  // shared_ptr: it can end a type it does not know
  std::shared_ptr<cpu::RopeTables> rope_tables_;
  Trace trace_;
  std::string lost_;
};

}  // namespace tessera
