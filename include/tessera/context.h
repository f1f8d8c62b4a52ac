// Everything an op needs besides its tensors: the device and its stream, threads, scratch memory
// and the trace. The first argument of every op. Two Contexts share nothing, except for CPU threads
// on request (share_threads_with).
//
// Threads: one at a time for each Context; any number of Contexts at the same time. If a second
// thread begins an op while one runs, that op throws Error (invalid_argument) and touches nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/device.h"
#include "tessera/trace.h"

namespace tessera {

class BackendState;  // src/core/backend_state.h
class Branch;        // src/core/branch.h
class ThreadPool;    // src/core/thread_pool.h
class Workspace;     // src/core/workspace.h

// How the CPU multiplies packed weights with activations. A GPU ignores this setting; see linear().
enum class Activations : std::uint8_t {
  exact,  // weights are decoded to f32 and multiplied with f32 activations
  int8,   // activations are rounded to 8 bits per block of 32: integer dot products, faster. For
          // weights that prepare() has laid out in tiles; all others stay exact
};

class Context;

struct ContextOptions {
  Device device{};
  // CPU threads, including the calling one. 0: the processors that this process may use, at most
  // the CPU quota of its container.
  int threads = 0;
  // A Context whose CPU threads this one uses too, instead of starting its own; `threads` is then 0
  // or the same number. Parallel loops of Contexts that share threads run one after the other. For
  // programs with many Contexts on few processors. Either Context may end first.
  const Context* share_threads_with = nullptr;
  Activations activations = Activations::exact;
  bool trace = false;
  // On a GPU: repeated steps of a model are recorded, and run as CUDA graphs. False is for
  // comparisons.
  bool graphs = true;
  // Reports the device's memory to load_model() and Model::make_cache(). Default: device_memory()
  // on a GPU, process_memory() on the CPU. For programs that leave some memory to others, and for
  // tests. On the CPU, only `total` counts: the memory that this process holds is subtracted from
  // it.
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
  //
  // A program may capture it in a CUDA graph of its own (cudaStreamBeginCapture). Such a graph uses
  // the Context's scratch and counters, so launch it on this stream and no other. Do not launch it
  // once an op has made the scratch grow (workspace_bytes()): run all ops of the graph twice before
  // the capture. During a capture, copies from the host are refused. Any wait breaks the capture,
  // and a trace waits too.
  void* stream() const { return stream_; }
  // Waits for all work on the stream. On the CPU it does nothing: an op returns when it is done.
  void synchronize();
  // What failed first; normally empty. After a fault in a kernel the driver drops all GPU work of
  // this process, and every op on this Context throws this message at once.
  const std::string& lost() const { return lost_; }

  Activations activations() const { return activations_; }
  void set_activations(Activations activations) { activations_ = activations; }

  bool graphs() const { return graphs_; }

  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

  // The device's total and free memory, as ContextOptions::memory reports them or its default does.
  DeviceMemory memory() const;
  // Scratch memory of the ops: what is held now, and the most that was ever in use.
  std::int64_t workspace_bytes() const;
  std::int64_t workspace_peak_bytes() const;

  // For ops and modules.
  ThreadPool& pool() { return *pool_; }
  Workspace& workspace() { return *workspace_; }
  // What the device's back end keeps between calls. On the CPU it is null until it is needed.
  std::unique_ptr<BackendState>& backend_state() { return backend_state_; }
  // Throws lost() if the Context is lost.
  void require_not_lost() const;
  // Marks the Context as lost, for this reason unless there is an earlier one, and throws lost().
  [[noreturn]] void lose(const std::string& what_failed);

 private:
  friend class Branch;  // which lends it another stream

  Device device_;
  Activations activations_;
  bool graphs_;
  void* stream_ = nullptr;
  std::function<DeviceMemory(Device)> memory_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<BackendState> backend_state_;
  Trace trace_;
  std::string lost_;
};

}  // namespace tessera
