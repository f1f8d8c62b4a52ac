#include "random/by_kernel.h"

#include <set>

#include "core/build_config.h"
#include "cuda/attention/backward/choose.h"
#include "cuda/attention/choose.h"
#include "cuda/linear/force.h"

namespace tessera::test {
namespace {

std::vector<std::string> texts(const std::vector<const char*>& names) {
  return {names.begin(), names.end()};
}

// The kernels of an op that a trace has calls of.
std::set<std::string> traced(const Context& ctx, const std::string& op) {
  std::set<std::string> kernels;
  for (const TraceEntry& entry : ctx.trace().entries()) {
    if (entry.op == op) kernels.insert(entry.kernel);
  }
  return kernels;
}

// At its end, the Context chooses its kernels by itself again.
class Unforced {
 public:
  explicit Unforced(Context& ctx) : ctx_(ctx) {}
  ~Unforced() {
    if constexpr (kHaveCuda) {
      if (ctx_.device().is_cpu()) return;
      cuda::force_attention_kernel(ctx_, "");
      cuda::force_linear_kernel(ctx_, "");
    }
  }
  Unforced(const Unforced&) = delete;
  Unforced& operator=(const Unforced&) = delete;

 private:
  Context& ctx_;
};

}  // namespace

std::vector<std::string> attention_kernel_names(Context& ctx, const AttentionArgs& args) {
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) return texts(cuda::attention_kernels(ctx, args));
  }
  return {"cpu"};
}

void attention_by(Context& ctx, const std::string& kernel, const AttentionArgs& args) {
  const Unforced unforced(ctx);
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) cuda::force_attention_kernel(ctx, kernel);
  }
  attention(ctx, args);
}

std::vector<std::string> backward_kernel_names(Context& ctx, const AttentionBackwardArgs& args) {
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) return texts(cuda::backward_kernels(ctx, args));
  }
  return {"cpu"};
}

void backward_by(Context& ctx, const std::string& kernel, const AttentionBackwardArgs& args) {
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) {
      cuda::attention_backward_by(ctx, kernel, args);
      if (ctx.trace().enabled()) {  // which ops do
        ctx.trace().record(
            {.op = "attention_backward", .kernel = kernel, .shapes = "", .calls = 1});
      }
      return;
    }
  }
  attention_backward(ctx, args);
}

void by_every_linear_kernel(Trial& trial, const std::string& op, const std::function<void()>& run,
                            const std::function<void()>& check) {
  trial.begin("the chosen one");
  run();
  check();
  if constexpr (kHaveCuda) {
    if (trial.on_cpu()) return;
    std::set<std::string> known = traced(trial.ctx, op);
    const Unforced unforced(trial.ctx);
    for (const char* kernel : cuda::linear_kernel_names()) {
      trial.begin(kernel);
      cuda::force_linear_kernel(trial.ctx, kernel, cuda::Forced::where_it_can);
      run();
      if (traced(trial.ctx, op) == known) continue;  // it was left to the chosen one
      known = traced(trial.ctx, op);
      check();
    }
  }
}

}  // namespace tessera::test
