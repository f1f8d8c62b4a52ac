// CUDA graphs for core/captured_graph.h, which states what a graph owns and what a capture refuses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/captured_graph.h"
#include "cuda/runtime/owned.h"
#include "tessera/buffer.h"
#include "tessera/device.h"

namespace tessera::cuda {

// Whether the stream is being captured, by capture() or by other code. Its work is then recorded
// instead of run.
bool is_capturing(cudaStream_t stream);

// The memory that a graph's kernels use besides their ops' tensors.
struct GraphMemory {
  Buffer counters;                   // zeros between two launches (make_counters)
  std::vector<Buffer> side_scratch;  // of branches
  std::vector<Buffer> scratch;
};

class Graph final : public BackendGraph {
 public:
  Graph(Device device, std::shared_ptr<GraphMemory> memory, OwnedGraph graph);
  ~Graph() override;

  void launch(Context& ctx) override;
  std::int64_t scratch_bytes() const override;

  Device device() const { return device_; }
  const std::shared_ptr<GraphMemory>& memory() const { return memory_; }
  // The recording, for tests and for printing.
  cudaGraph_t recorded() const { return recorded_.get(); }
  // For tests: like cuda::check_counters(), for the graph's counters, after all launches on the
  // stream.
  void check_counters(Context& ctx) const;

 private:
  Device device_;
  std::shared_ptr<GraphMemory> memory_;
  OwnedGraph recorded_;
  OwnedGraphExec executable_;
};

}  // namespace tessera::cuda
