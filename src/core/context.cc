#include "tessera/context.h"

#include "core/backend_state.h"
#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "tessera/error.h"

namespace tessera {

Context::Context(const ContextOptions& options)
    : device_(options.device),
      activations_(options.activations),
      memory_(options.memory ? options.memory : device_memory),
      pool_(std::make_unique<ThreadPool>(options.threads)),
      workspace_(std::make_unique<Workspace>(options.device)) {
  if (device_.is_cuda()) {
    backend_state_ = cuda::make_state(device_, *pool_);
    stream_ = cuda::stream_of(*backend_state_);
  }
  trace_.enable(options.trace);
}

Context::~Context() = default;

int Context::threads() const { return pool_->threads(); }

void Context::synchronize() {
  if (!stream_) return;
  require_not_lost();
  try {
    cuda::synchronize(stream_, device_);
  } catch (const DeviceLost& error) {
    lose(error.what_failed());
  }
}

void Context::require_not_lost() const {
  if (!lost_.empty()) throw Error(ErrorCode::device, lost_);
}

void Context::lose(const std::string& what_failed) {
  if (lost_.empty()) lost_ = to_string(device_) + ": " + what_failed + kLostAdvice;
  throw Error(ErrorCode::device, lost_);
}

DeviceMemory Context::memory() const { return memory_(device_); }
std::int64_t Context::workspace_bytes() const { return workspace_->held_bytes(); }
std::int64_t Context::workspace_peak_bytes() const { return workspace_->peak_bytes(); }

}  // namespace tessera
