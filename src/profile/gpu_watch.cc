#include "profile/gpu_watch.h"

#include <algorithm>
#include <utility>

#include "core/build_config.h"
#include "core/traced_work.h"
#include "cuda/runtime/kernel_timer.h"
#include "cuda/runtime/op_names.h"

namespace tessera::profile {
namespace {

bool is_gpu(const Context& ctx) { return kHaveCuda && !ctx.device().is_cpu(); }

}  // namespace

// A call is recorded after its kernel is launched and before the next call begins. The entry whose
// count has grown by then is therefore that of the call.
class CallOrder::Impl final : public cuda::OpListener {
 public:
  explicit Impl(Context& ctx) : ctx_(ctx) {
    if constexpr (kHaveCuda) before_ = cuda::set_op_listener(this);
  }
  ~Impl() override {
    if constexpr (kHaveCuda) cuda::set_op_listener(before_);
  }
  void begin(const char*) noexcept override { note_last(); }
  void end() noexcept override { pending_ = true; }

  std::vector<std::size_t> take() {
    note_last();
    return std::move(order_);
  }

 private:
  void note_last() {
    if (!std::exchange(pending_, false)) return;
    const std::vector<TraceEntry>& entries = ctx_.trace().entries();
    calls_.resize(entries.size(), 0);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].calls == calls_[i]) continue;
      calls_[i] = entries[i].calls;
      if (entries[i].kernel != TracedWork::kKernel) order_.push_back(i);
    }
  }

  Context& ctx_;
  cuda::OpListener* before_ = nullptr;
  bool pending_ = false;
  std::vector<std::int64_t> calls_;  // of each entry, so far
  std::vector<std::size_t> order_;
};

CallOrder::CallOrder(Context& ctx) : impl_(is_gpu(ctx) ? std::make_unique<Impl>(ctx) : nullptr) {}
CallOrder::~CallOrder() = default;
std::vector<std::size_t> CallOrder::take() {
  return impl_ ? impl_->take() : std::vector<std::size_t>();
}

class KernelWatch::Impl {
 public:
  explicit Impl(Context& ctx) {
    if constexpr (kHaveCuda) timer_ = cuda::make_kernel_timer(ctx);
  }
  std::vector<KernelSpan> take() { return timer_->stop(); }

 private:
  std::unique_ptr<cuda::KernelTimer> timer_;
};

KernelWatch::KernelWatch(Context& ctx)
    : impl_(is_gpu(ctx) ? std::make_unique<Impl>(ctx) : nullptr) {}
KernelWatch::~KernelWatch() = default;
bool KernelWatch::names_kernels() {
  if constexpr (kHaveCuda) return cuda::why_no_cupti().empty();
  return false;
}
std::vector<KernelSpan> KernelWatch::take() {
  return impl_ ? impl_->take() : std::vector<KernelSpan>();
}

}  // namespace tessera::profile
