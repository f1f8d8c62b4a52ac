// Ops of a CUDA Context, recorded once and run again with one launch:
//
//   const CapturedGraph step = capture(ctx, [&] {
//     rms_norm(ctx, ...);
//     linear(ctx, ...);
//   });
//   step.launch(ctx);  // the same kernels on the same memory, and whatever it holds by then
//
// A graph owns the scratch that its ops took and the counters of its kernels. So it may run beside
// its Context's other work and beside other graphs, and the workspace may grow or shrink meanwhile.
//
// A graph does not own what its ops were given: tensors, weights, and scratch that was taken before
// the capture must outlive it. Kernels that overlap when launched one by one overlap in the graph.
//
// During a capture, ops are recorded and do not run. Whatever needs the host is refused:
//
// - Uploads, that is, copies from the host: the graph would read memory that is gone by then.
//   Upload before the capture; an op that reads from the device sees new values at every launch.
//   The refusal changes nothing: the caller may catch it and continue.
// - Waiting for the stream, and so copies to the host, and ops while the trace is on. These end
//   the capture with an error.
//
// A capture that fails leaves the Context as it was, ready for ops and for another capture.
#pragma once

#include <cstdint>
#include <memory>

#include "core/function_ref.h"
#include "tessera/device.h"

namespace tessera {

class Context;

// A back end's part of a graph: src/cuda/runtime/capture.h.
class BackendGraph {
 public:
  BackendGraph() = default;
  virtual ~BackendGraph() = default;
  BackendGraph(const BackendGraph&) = delete;
  BackendGraph& operator=(const BackendGraph&) = delete;

  virtual void launch(Context& ctx) = 0;
  virtual std::int64_t scratch_bytes() const = 0;
};

// Used by one thread at a time. It may outlive its Context, and may end while it still runs.
class CapturedGraph {
 public:
  CapturedGraph() = default;  // none
  explicit CapturedGraph(std::unique_ptr<BackendGraph> graph) : graph_(std::move(graph)) {}

  explicit operator bool() const { return graph_ != nullptr; }
  // Enqueues the graph on the Context's stream. Any Context of the same device will do, except one
  // that is capturing. Launches of one graph run one after the other, whatever their streams.
  void launch(Context& ctx) const;
  // Device memory that the graph owns or shares.
  std::int64_t scratch_bytes() const { return graph_ ? graph_->scratch_bytes() : 0; }
  const BackendGraph* backend() const { return graph_.get(); }

 private:
  std::unique_ptr<BackendGraph> graph_;
};

// Records what `work` does on the Context. Throws Error (unsupported) on the CPU, where there is
// nothing to record: call `work` instead.
//
// `same_memory`: a graph of this device that never runs at the same time as the new one, because
// both are launched on one stream. They then share scratch and counters, as the many graphs of a
// decode loop should. Without it the new graph has its own.
CapturedGraph capture(Context& ctx, FunctionRef<void()> work,
                      const CapturedGraph* same_memory = nullptr);

}  // namespace tessera
