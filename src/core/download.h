// Bytes on their way from a device to the host, for a caller that has other work meanwhile:
//
//   download.start(ctx, tensor.data, bytes);   // after the work that the stream already has
//   ...                                        // more work for the stream
//   download.wait(ctx);                        // waits for the copy, and for nothing after it
//
// A kernel may write the bytes itself, which saves the copy: to target(), and then
//
//   download.arrives(ctx);                     // instead of start()
//
// On the CPU start() copies at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/device.h"

namespace tessera {

class Context;

// A back end's part of a download: src/cuda/runtime/download.cc.
class BackendDownload {
 public:
  BackendDownload() = default;
  virtual ~BackendDownload() = default;  // waits for a copy that is still on its way
  BackendDownload(const BackendDownload&) = delete;
  BackendDownload& operator=(const BackendDownload&) = delete;

  virtual void start(void* stream, const void* from, std::int64_t bytes) = 0;
  virtual void* target() = 0;
  virtual void arrives(void* stream) = 0;
  virtual const void* wait() = 0;
};

// Used by one thread at a time.
class Download {
 public:
  // Pins host memory for up to `max_bytes`. Throws Error (out_of_memory) if that is impossible.
  Download(const Context& ctx, std::int64_t max_bytes);

  // Copies from the Context's device. A copy that was started before must have been waited for.
  void start(Context& ctx, const void* from, std::int64_t bytes);
  // Pinned memory, which kernels of the device can write to.
  void* target();
  // Call this once the work that writes to target() is on the stream.
  void arrives(Context& ctx);
  // The bytes of the last start() or arrives(), valid until the next one.
  const void* wait(Context& ctx);

 private:
  std::int64_t max_bytes_;
  std::vector<char> host_;                // on the CPU
  std::unique_ptr<BackendDownload> gpu_;  // or null
};

}  // namespace tessera
