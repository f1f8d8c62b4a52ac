#include "cuda/runtime/capture.h"

#include <new>
#include <utility>

#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "core/workspace.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "tessera/context.h"

namespace tessera::cuda {
namespace {

// A capture in progress: ops on the Context are recorded, and take their scratch and counters from
// `memory`. If it ends before finish(), the recording is dropped.
class Recording {
 public:
  // Relaxed: loading a kernel at its first use, a cuBLASLt handle and new scratch may all allocate.
  // That does not disturb a capture, but stricter modes refuse it, even in other threads.
  Recording(Context& ctx, GraphMemory& memory)
      : state_(state_of(ctx)), scratch_(ctx.workspace(), memory.scratch) {
    check(cudaStreamBeginCapture(state_.stream(), cudaStreamCaptureModeRelaxed),
          "starting a capture");
    state_.use_memory_of(&memory);
  }
  ~Recording() {
    if (!state_.captures()) return;
    end();
    cudaGetLastError();  // the error that led here is the one to report
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  OwnedGraph finish() {
    auto [error, graph] = end();
    check(error, "capturing a graph");
    return std::move(graph);
  }

 private:
  std::pair<cudaError_t, OwnedGraph> end() {
    state_.use_memory_of(nullptr);
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(state_.stream(), &graph);
    return {error, OwnedGraph(graph)};
  }

  State& state_;
  Workspace::Elsewhere scratch_;
};

// The counters are zero when this returns: the graph's first launch may be on another stream.
std::shared_ptr<GraphMemory> make_memory(Context& ctx) {
  auto memory = std::make_shared<GraphMemory>();
  memory->counters = make_counters(ctx.device(), state_of(ctx).stream());
  synchronize(ctx.stream(), ctx.device());
  return memory;
}

std::shared_ptr<GraphMemory> shared_memory(Context& ctx, const Graph& with) {
  if (with.device() != ctx.device()) {
    fail(ErrorCode::invalid_argument, "capture on {}: the other graph's memory is on {}",
         ctx.device(), with.device());
  }
  return with.memory();
}

}  // namespace

// A stream that cannot answer is broken, and reports it at its next use.
bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return false;
  return status != cudaStreamCaptureStatusNone;
}

// ---- Graph --------------------------------------------------------------------------------------

Graph::Graph(Device device, std::shared_ptr<GraphMemory> memory, OwnedGraph graph)
    : device_(device), memory_(std::move(memory)), recorded_(std::move(graph)) {
  const DeviceGuard guard(device_);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, recorded_.get(), 0),
        "making a captured graph executable");
  executable_.reset(executable);
}

// The driver keeps a graph until its last launch has ended, and waits for that before it frees
// memory.
Graph::~Graph() {
  const DeviceGuard guard(device_, std::nothrow);
  executable_.reset();
  recorded_.reset();
  memory_.reset();
}

void Graph::launch(Context& ctx) {
  if (ctx.device() != device_) {
    fail(ErrorCode::invalid_argument,
         "launch: the graph was captured on {}, and this Context is on {}", device_, ctx.device());
  }
  if (state_of(ctx).captures()) {
    fail(ErrorCode::invalid_argument,
         "launch: this Context is capturing, and a graph cannot be part of another: launch it "
         "afterwards");
  }
  const DeviceGuard guard(device_);
  check(cudaGraphLaunch(executable_.get(), state_of(ctx).stream()), "launching a captured graph");
}

std::int64_t Graph::scratch_bytes() const {
  std::int64_t total = memory_->counters.bytes();
  for (const Buffer& block : memory_->scratch) total += block.bytes();
  return total;
}

void Graph::check_counters(Context& ctx) const {
  check_zeros(memory_->counters, state_of(ctx).stream());
}

// ---- cuda_runtime.h -----------------------------------------------------------------------------

std::unique_ptr<BackendGraph> capture(Context& ctx, FunctionRef<void()> work,
                                      const BackendGraph* same_memory) {
  const DeviceGuard guard(ctx.device());
  if (is_capturing(state_of(ctx).stream())) {
    fail(ErrorCode::invalid_argument,
         "capture: the stream of this Context is being captured already: end that capture first");
  }
  const std::shared_ptr<GraphMemory> memory =
      same_memory ? shared_memory(ctx, static_cast<const Graph&>(*same_memory)) : make_memory(ctx);
  OwnedGraph graph;
  {
    Recording recording(ctx, *memory);
    work();
    graph = recording.finish();
  }
  return std::make_unique<Graph>(ctx.device(), memory, std::move(graph));
}

}  // namespace tessera::cuda
