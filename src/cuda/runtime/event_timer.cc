// The kernel timer without CUPTI: an event before and one after each op, read when all is done.
#include <cuda_runtime_api.h>

#include <cmath>
#include <utility>

#include "core/fail.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/kernel_timer.h"
#include "cuda/runtime/op_names.h"

namespace tessera::cuda {
namespace {

class EventTimer final : public KernelTimer, public OpListener {
 public:
  explicit EventTimer(Context& ctx) : ctx_(ctx), stream_(static_cast<cudaStream_t>(ctx.stream())) {
    before_ = set_op_listener(this);
  }
  ~EventTimer() override {
    detach();
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void begin(const char*) noexcept override { mark(); }
  void end() noexcept override { mark(); }

  std::vector<KernelSpan> stop() override {
    detach();
    ctx_.synchronize();
    if (error_ != cudaSuccess) {
      fail(ErrorCode::device, "events for timing failed: {}", text_of(error_));
    }
    std::vector<KernelSpan> spans;
    for (std::size_t i = 0; i + 1 < events_.size(); i += 2) {
      spans.push_back({.name = {},
                       .start_ns = nanoseconds(events_[i]),
                       .end_ns = nanoseconds(events_[i + 1]),
                       .call = static_cast<std::int64_t>(i / 2)});
    }
    return spans;
  }

 private:
  void detach() {
    if (attached_) set_op_listener(before_);
    attached_ = false;
  }
  // Errors are kept for stop(): an op must not fail because it is timed.
  void mark() noexcept {
    cudaEvent_t event = nullptr;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDefault);
    if (error == cudaSuccess) error = cudaEventRecord(event, stream_);
    if (error != cudaSuccess) error_ = error;
    events_.push_back(event);
  }
  // The time since the first event.
  std::int64_t nanoseconds(cudaEvent_t event) const {
    float ms = 0;
    const cudaError_t error = cudaEventElapsedTime(&ms, events_.front(), event);
    if (error != cudaSuccess) {
      fail(ErrorCode::device, "an event's time could not be read: {}", text_of(error));
    }
    return std::llround(1e6 * static_cast<double>(ms));
  }

  Context& ctx_;
  cudaStream_t stream_;
  OpListener* before_ = nullptr;
  bool attached_ = true;
  cudaError_t error_ = cudaSuccess;
  std::vector<cudaEvent_t> events_;  // before, after, before, after, ...
};

}  // namespace

std::unique_ptr<KernelTimer> make_event_timer(Context& ctx) {
  return std::make_unique<EventTimer>(ctx);
}

}  // namespace tessera::cuda
