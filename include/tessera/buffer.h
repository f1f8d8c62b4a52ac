// Owns a block of memory on one device.
//
// Threads: any number may use the memory, as with any array. Only one may move or destroy a Buffer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "tessera/device.h"
#include "tessera/tensor.h"

namespace tessera {

class Context;

class Buffer {
 public:
  // Every block starts on this boundary: a cache line, and a full 512-bit vector.
  static constexpr std::int64_t kAlignment = 64;

  // An empty buffer, without memory.
  Buffer() = default;
  // Uninitialised memory for a contiguous tensor of this dtype and shape. Pass a shape that is
  // known at run time as a std::span or a std::vector. Throws Error (out_of_memory) with the amount
  // that was requested. Memory on the CPU counts as held by this process (process_memory()).
  Buffer(DType dtype, std::span<const std::int64_t> shape, Device device = {});
  Buffer(DType dtype, std::initializer_list<std::int64_t> shape, Device device = {});
  // The same for plain bytes: u8 [bytes].
  explicit Buffer(std::int64_t bytes, Device device = {});
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return tensor_.data; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return tensor_.device; }

  // A view of the whole buffer, with the dtype and shape it was made with.
  Tensor tensor() const { return tensor_; }
  // A contiguous view of the buffer's start. Throws if the view would reach past the end.
  Tensor tensor(DType dtype, std::span<const std::int64_t> shape) const;
  Tensor tensor(DType dtype, std::initializer_list<std::int64_t> shape) const;

 private:
  void release() noexcept;

  Tensor tensor_;
  std::int64_t bytes_ = 0;
};

// Copies `bytes` between any two devices, on the Context's stream. It returns once host memory has
// been read or written. A copy to a GPU, or within one, is only enqueued: later work of this
// Context sees the bytes; any other Context must wait for this one's synchronize(). On a Context of
// the CPU, which has no stream, the copy is complete when the call returns.
void copy_bytes(Context& ctx, void* to, Device to_device, const void* from, Device from_device,
                std::int64_t bytes);

}  // namespace tessera
