#include "stream_order.h"

#include <string>

#include "tessera/error.h"

#if TESSERA_PYTHON_CUDA
#include <cuda_runtime_api.h>
#endif

namespace tessera::python {

#if TESSERA_PYTHON_CUDA
namespace {

void require_success(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::device, std::string(what) + ": " + cudaGetErrorString(result));
}

// Work on `later` begins after what is on `earlier` now.
void order(int device, cudaStream_t earlier, cudaStream_t later) {
  if (earlier == later) return;
  int before = 0;
  require_success(cudaGetDevice(&before), "asking for the current GPU");
  require_success(cudaSetDevice(device), "choosing the GPU of the arrays");
  // An event may be destroyed while work still waits for it: CUDA frees it afterwards.
  cudaEvent_t event = nullptr;
  cudaError_t result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (result == cudaSuccess) result = cudaEventRecord(event, earlier);
  if (result == cudaSuccess) result = cudaStreamWaitEvent(later, event, 0);
  if (event != nullptr) cudaEventDestroy(event);
  cudaSetDevice(before);
  require_success(result, "putting the streams in order");
}

}  // namespace

StreamOrder::StreamOrder(Context& ctx, void* stream) : ctx_(ctx), stream_(stream) {
  if (!ctx.device().is_cuda()) return;
  order(ctx.device().index, static_cast<cudaStream_t>(stream),
        static_cast<cudaStream_t>(ctx.stream()));
}

void StreamOrder::finish() {
  if (!ctx_.device().is_cuda()) return;
  order(ctx_.device().index, static_cast<cudaStream_t>(ctx_.stream()),
        static_cast<cudaStream_t>(stream_));
}
#else
StreamOrder::StreamOrder(Context& ctx, void* stream) : ctx_(ctx), stream_(stream) {}
void StreamOrder::finish() {
  static_cast<void>(ctx_);
  static_cast<void>(stream_);
}
#endif

}  // namespace tessera::python
