#include "tessera/context.h"

#include "core/backend_state.h"
#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "core/fail.h"
#include "core/thread_pool.h"
#include "core/workspace.h"

namespace tessera {
namespace {

// `shared`: of the Context to share with, or null.
std::shared_ptr<ThreadPool> pool_for(int threads, const std::shared_ptr<ThreadPool>& shared) {
  if (!shared) return std::make_shared<ThreadPool>(threads);
  if (threads != 0 && threads != shared->threads()) {
    fail(ErrorCode::invalid_argument,
         "{} threads were asked for and the Context to share them with has {}; give 0 for as many",
         threads, shared->threads());
  }
  return shared;
}

}  // namespace

Context::Context(const ContextOptions& options)
    : device_(options.device),
      activations_(options.activations),
      graphs_(options.graphs),
      memory_(options.memory),
      pool_(pool_for(options.threads,
                     options.share_threads_with ? options.share_threads_with->pool_ : nullptr)),
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
  const OneUser::Use use(workspace_->user(), "synchronize");
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

DeviceMemory Context::memory() const {
  if (memory_) return memory_(device_);
  return device_.is_cpu() ? process_memory() : device_memory(device_);
}
std::int64_t Context::workspace_bytes() const { return workspace_->held_bytes(); }
std::int64_t Context::workspace_peak_bytes() const { return workspace_->peak_bytes(); }

}  // namespace tessera
