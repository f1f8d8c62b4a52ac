// Owns a block of memory on one device.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "tessera/device.h"
#include "tessera/tensor.h"

namespace tessera {

class Context;

class Buffer {
 public:
  // Every block starts on this boundary: a cache line, and a full 512-bit vector.
  static constexpr std::int64_t kAlignment = 64;

  Buffer() = default;
  // Uninitialised memory. Throws Error (out_of_memory) and says how much was asked for.
  explicit Buffer(std::int64_t bytes, Device device = {});
  // Room for a contiguous tensor of this dtype and shape.
  Buffer(DType dtype, std::initializer_list<std::int64_t> shape, Device device = {});
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // A contiguous view of the buffer's start. Throws where it would reach past the end.
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape) const;

 private:
  void release() noexcept;

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Device device_;
};

// Copies `bytes` between any two devices, on the Context's stream. It returns when host memory has
// been read or written. A copy to a GPU, or within one, is only enqueued: all later work of this
// Context finds the bytes there, any other has to wait for this one's synchronize(). A Context on
// the CPU has no stream, and waits.
void copy_bytes(Context& ctx, void* to, Device to_device, const void* from, Device from_device,
                std::int64_t bytes);

}  // namespace tessera
