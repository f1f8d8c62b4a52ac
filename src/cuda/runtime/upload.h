// Copies host memory to the GPU without waiting for the GPU. A copy engine reads only pinned memory
// on its own, and pinning the caller's memory would cost more than the copy. So the bytes pass
// through pinned memory that the Context keeps:
//
//   small (token ids, a step of the KV cache)   one slot of a ring, copied by the calling thread
//   large (weights)                             chunk by chunk, copied by all threads:
//
//     threads   | copy 0 | copy 1 | copy 2 | copy 3 ...    into slots 0, 1, 2, 0, ...
//     engine             | send 0 | send 1 | send 2 ...
//
// When a copy returns, the host memory has been read, and the bytes arrive in order with all other
// work on the stream. All slots may still be in flight.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/runtime/owned.h"
#include "cuda/runtime/pinned.h"
#include "tessera/device.h"

namespace tessera {
class ThreadPool;  // src/core/thread_pool.h
}

namespace tessera::cuda {

// Pinned memory in slots of equal size, used in turn. A slot is used again only when the last copy
// from it is done.
class PinnedRing {
 public:
  // Throws Error (out_of_memory) if the memory cannot be pinned.
  PinnedRing(Device device, std::int64_t slot_bytes, int slots);
  ~PinnedRing();  // waits for the copies that are still in flight
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  // Waits until the next slot may be written, and returns it.
  char* wait_for_slot();
  // Enqueues the copy of that slot's first bytes and advances to the next slot.
  void send(void* to, std::int64_t bytes, cudaStream_t stream);

 private:
  char* slot() const { return memory_.get() + static_cast<std::int64_t>(turn_) * slot_bytes_; }

  Device device_;
  std::int64_t slot_bytes_;
  PinnedMemory memory_;
  std::vector<OwnedEvent> sent_;  // one for each slot
  std::size_t turn_ = 0;
};

// The uploads of one Context. The first copy that needs pinned memory allocates it.
class Uploader {
 public:
  // A slot for a small copy holds the ids and KV tensors of a step of 8192 tokens. Dividing less
  // than this among threads would gain nothing: one thread copies it in about 20 us.
  static constexpr std::int64_t kSmallBytes = 256 << 10;
  // Two small copies a step: the host may be eight steps ahead of the GPU.
  static constexpr int kSmallSlots = 16;
  // At 50 GB/s a chunk takes 160 us to copy; enqueueing it takes some 5 us. All chunks together
  // still fit into a server's last-level cache, so that the detour through pinned memory costs no
  // memory bandwidth.
  static constexpr std::int64_t kChunkBytes = 8 << 20;
  // One is being sent, one waits, one is being written.
  static constexpr int kChunkSlots = 3;

  // The stream and the pool must outlive the Uploader.
  Uploader(Device device, cudaStream_t stream, ThreadPool& pool)
      : device_(device), stream_(stream), pool_(pool) {}

  // `to` on a device, `from` on the host. Throws Error while the stream is being captured in a
  // graph; the Context then goes on as if there had been no call.
  void copy(void* to, const void* from, std::int64_t bytes);

 private:
  void refuse_in_capture(std::int64_t bytes) const;
  void copy_small(char* to, const char* from, std::int64_t bytes);
  void copy_chunk(char* to, const char* from, std::int64_t bytes);

  Device device_;
  cudaStream_t stream_;
  ThreadPool& pool_;
  std::optional<PinnedRing> small_, chunks_;
};

}  // namespace tessera::cuda
