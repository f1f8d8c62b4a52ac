// The CUDA side of core/download.h: a copy into pinned memory, followed by an event.
#include "core/download.h"

#include "core/cuda_runtime.h"
#include "core/format.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/pinned.h"

namespace tessera::cuda {
namespace {

class PinnedDownload final : public BackendDownload {
 public:
  PinnedDownload(Device device, std::int64_t max_bytes)
      : device_(device),
        memory_(make_pinned(max_bytes, device, fmt::format("downloads from {} take", device))) {
    const DeviceGuard guard(device);
    arrived_ = make_copy_event();
  }
  // Nothing can be done about a failure here: a broken device has stopped writing.
  ~PinnedDownload() override { cudaEventSynchronize(arrived_.get()); }

  void start(void* stream, const void* from, std::int64_t bytes) override {
    const DeviceGuard guard(device_);
    const cudaError_t error =
        cudaMemcpyAsync(memory_.get(), from, static_cast<std::size_t>(bytes),
                        cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream));
    if (error != cudaSuccess) {
      check(error, fmt::format("copying {} bytes from {} to cpu", bytes, device_));
    }
    arrives(stream);
  }

  void* target() override { return memory_.get(); }

  void arrives(void* stream) override {
    const DeviceGuard guard(device_);
    const cudaError_t error = cudaEventRecord(arrived_.get(), static_cast<cudaStream_t>(stream));
    if (error != cudaSuccess) check(error, fmt::format("marking a download from {}", device_));
  }

  const void* wait() override {
    const cudaError_t error = cudaEventSynchronize(arrived_.get());
    if (error != cudaSuccess) check(error, fmt::format("waiting for a download from {}", device_));
    return memory_.get();
  }

 private:
  Device device_;
  PinnedMemory memory_;
  OwnedEvent arrived_;
};

}  // namespace

std::unique_ptr<BackendDownload> make_download(Device device, std::int64_t max_bytes) {
  return std::make_unique<PinnedDownload>(device, max_bytes);
}

}  // namespace tessera::cuda
