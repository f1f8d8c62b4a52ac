#include "core/side_stream.h"

#include "core/format.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/owned.h"
#include "cuda/runtime/pinned.h"
#include "tessera/context.h"

namespace tessera::cuda {
namespace {

class EventSideStream final : public SideStream {
 public:
  explicit EventSideStream(Device device) : device_(device) {
    const DeviceGuard guard(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
          fmt::format("making a second stream on {}", device));
    stream_.reset(stream);
    ready_ = make_copy_event();
    done_ = make_copy_event();
  }

  void begin(Context& ctx) override {
    const DeviceGuard guard(device_);
    pass(ready_.get(), static_cast<cudaStream_t>(ctx.stream()), stream_.get());
  }
  void end() override {
    const DeviceGuard guard(device_);
    check(cudaEventRecord(done_.get(), stream_.get()), kAttempt);
  }
  void join(Context& ctx) override {
    const DeviceGuard guard(device_);
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(ctx.stream()), done_.get(), 0), kAttempt);
  }
  void* stream() const override { return stream_.get(); }

 private:
  static constexpr const char* kAttempt = "ordering two streams";

  // The next work of `to` waits for the present work of `from`.
  static void pass(cudaEvent_t event, cudaStream_t from, cudaStream_t to) {
    check(cudaEventRecord(event, from), kAttempt);
    check(cudaStreamWaitEvent(to, event, 0), kAttempt);
  }

  Device device_;
  OwnedStream stream_;
  OwnedEvent ready_, done_;
};

}  // namespace

std::unique_ptr<SideStream> make_side_stream(Device device) {
  return std::make_unique<EventSideStream>(device);
}

void with_device(Device device, FunctionRef<void()> work) {
  const DeviceGuard guard(device);
  work();
}

}  // namespace tessera::cuda
