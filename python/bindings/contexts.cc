#include "contexts.h"

#include <memory>
#include <mutex>
#include <vector>

namespace tessera::python {
namespace {

std::mutex threads_mutex;
// Never freed: Contexts of other threads may outlive the end of main().
Context* threads_owner = nullptr;

const Context* shared_threads() {
  const std::lock_guard lock(threads_mutex);
  if (threads_owner == nullptr) threads_owner = new Context();
  return threads_owner;
}

std::vector<std::unique_ptr<Context>>& contexts_of_this_thread() {
  thread_local std::vector<std::unique_ptr<Context>> contexts;
  return contexts;
}

}  // namespace

Context& default_context(Device device) {
  auto& contexts = contexts_of_this_thread();
  for (const auto& ctx : contexts) {
    if (ctx->device() == device) return *ctx;
  }
  contexts.push_back(std::make_unique<Context>(
      ContextOptions{.device = device, .share_threads_with = shared_threads()}));
  return *contexts.back();
}

void forget_default_contexts() {
  threads_owner = nullptr;
  auto& contexts = contexts_of_this_thread();
  for (auto& ctx : contexts) static_cast<void>(ctx.release());
  contexts.clear();
}

}  // namespace tessera::python
