#include "cuda/runtime/upload.h"

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "core/format.h"
#include "core/thread_pool.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

// The bytes that a thread copies at a time: a chunk has enough pieces to balance the threads, and
// each is long enough for the prefetchers.
constexpr std::int64_t kPieceBytes = 256 << 10;

}  // namespace

// ---- PinnedRing ---------------------------------------------------------------------------------

PinnedRing::PinnedRing(Device device, std::int64_t slot_bytes, int slots)
    : device_(device),
      slot_bytes_(slot_bytes),
      memory_(make_pinned(slot_bytes * slots, device,
                          fmt::format("uploads to {} pass through", device))) {
  const DeviceGuard guard(device);
  for (int i = 0; i < slots; ++i) sent_.push_back(make_copy_event());
}

// Nothing can be done about a failure here: a broken device has stopped reading.
PinnedRing::~PinnedRing() {
  for (const auto& event : sent_) cudaEventSynchronize(event.get());
}

// An event that was never recorded counts as passed.
char* PinnedRing::wait_for_slot() {
  const cudaError_t error = cudaEventSynchronize(sent_[turn_].get());
  if (error != cudaSuccess) check(error, fmt::format("waiting for an upload to {}", device_));
  return slot();
}

void PinnedRing::send(void* to, std::int64_t bytes, cudaStream_t stream) {
  cudaError_t error =
      cudaMemcpyAsync(to, slot(), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = cudaEventRecord(sent_[turn_].get(), stream);
  if (error != cudaSuccess) {
    check(error, fmt::format("copying {} bytes from cpu to {}", bytes, device_));
  }
  turn_ = (turn_ + 1) % sent_.size();
}

// ---- Uploader -----------------------------------------------------------------------------------

// A graph would read the slot at every launch, when it holds other bytes, and the slot's event
// would belong to the graph and could not be waited for again. So this check comes before anything
// is changed.
void Uploader::refuse_in_capture(std::int64_t bytes) const {
  if (!is_capturing(stream_)) return;
  fail(
      ErrorCode::invalid_argument,
      "copying {} bytes from cpu to {}: the stream is being captured, and a graph cannot keep host "
      "memory: upload before the capture",
      bytes, device_);
}

void Uploader::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) refuse_in_capture(bytes);
  char* const target = static_cast<char*>(to);
  const char* const source = static_cast<const char*>(from);
  if (bytes <= kSmallBytes) {
    if (bytes > 0) copy_small(target, source, bytes);
    return;
  }
  for (std::int64_t done = 0; done < bytes; done += kChunkBytes) {
    copy_chunk(target + done, source + done, std::min(kChunkBytes, bytes - done));
  }
}

void Uploader::copy_small(char* to, const char* from, std::int64_t bytes) {
  if (!small_) small_.emplace(device_, kSmallBytes, kSmallSlots);
  std::memcpy(small_->wait_for_slot(), from, static_cast<std::size_t>(bytes));
  small_->send(to, bytes, stream_);
}

void Uploader::copy_chunk(char* to, const char* from, std::int64_t bytes) {
  if (!chunks_) chunks_.emplace(device_, kChunkBytes, kChunkSlots);
  char* const slot = chunks_->wait_for_slot();
  pool_.parallel_for((bytes + kPieceBytes - 1) / kPieceBytes, [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPieceBytes;
    const std::int64_t end = std::min(begin + kPieceBytes, bytes);
    std::memcpy(slot + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
  chunks_->send(to, bytes, stream_);
}

}  // namespace tessera::cuda
