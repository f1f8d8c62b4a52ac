#include "tessera/context.h"

#include "core/cuda_runtime.h"
#include "core/thread_pool.h"
#include "core/workspace.h"

namespace tessera {

Context::Context(const ContextOptions& options)
    : device_(options.device),
      activations_(options.activations),
      pool_(std::make_unique<ThreadPool>(options.threads)),
      workspace_(std::make_unique<Workspace>(options.device)) {
  if (device_.is_cuda()) stream_ = cuda::create_stream(device_);
  trace_.enable(options.trace);
}

Context::~Context() {
  if (stream_) cuda::destroy_stream(stream_, device_);
}

int Context::threads() const { return pool_->threads(); }

void Context::synchronize() {
  if (stream_) cuda::synchronize(stream_, device_);
}

std::int64_t Context::workspace_bytes() const { return workspace_->held_bytes(); }
std::int64_t Context::workspace_peak_bytes() const { return workspace_->peak_bytes(); }

}  // namespace tessera
