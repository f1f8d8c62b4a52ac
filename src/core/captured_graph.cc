#include "core/captured_graph.h"

#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "tessera/context.h"

namespace tessera {

void CapturedGraph::launch(Context& ctx) const {
  if (!graph_)
    fail(ErrorCode::invalid_argument, "launch: the graph is empty; make one with capture()");
  ctx.require_not_lost();
  try {
    graph_->launch(ctx);
  } catch (const DeviceLost& error) {
    ctx.lose(error.what_failed());
  }
}

CapturedGraph capture(Context& ctx, FunctionRef<void()> work, const CapturedGraph* same_memory) {
  if (ctx.device().is_cpu()) {
    fail(ErrorCode::unsupported,
         "capture: this Context is on the CPU, which has no graphs: run the ops themselves");
  }
  if (ctx.trace().enabled()) {
    fail(ErrorCode::invalid_argument,
         "capture: the trace waits for every op, and a capture cannot wait: turn the trace off");
  }
  if (ctx.workspace().is_counting()) {
    fail(ErrorCode::invalid_argument,
         "capture: the workspace only counts, so there would be no work: capture afterwards");
  }
  ctx.require_not_lost();
  try {
    return CapturedGraph(cuda::capture(ctx, work, same_memory ? same_memory->backend() : nullptr));
  } catch (const DeviceLost& error) {
    ctx.lose(error.what_failed());
  }
}

}  // namespace tessera
