#include "cuda/runtime/op_names.h"

#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "core/cuda_runtime.h"

namespace tessera::cuda {
namespace {

// A timer belongs to the thread that runs the ops, like CUPTI's labels.
thread_local OpListener* t_op_listener = nullptr;

}  // namespace

OpListener* set_op_listener(OpListener* listener) noexcept {
  return std::exchange(t_op_listener, listener);
}

void begin_op(const char* op) noexcept {
  nvtxRangePushA(op);
  if (t_op_listener != nullptr) t_op_listener->begin(op);
}

void end_op() noexcept {
  if (t_op_listener != nullptr) t_op_listener->end();
  nvtxRangePop();
}

}  // namespace tessera::cuda
