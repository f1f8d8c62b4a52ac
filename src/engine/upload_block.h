// Small arrays that go to the device together, in one copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/checked.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera {

class UploadBlock {
 public:
  explicit UploadBlock(Context& ctx) : ctx_(ctx) {}

  void clear() { bytes_ = 0; }
  // Adds an array and returns its place in the block.
  template <typename T>
  std::int64_t add(std::span<const T> items) {
    const std::int64_t place = checked_align(bytes_, Buffer::kAlignment);
    bytes_ = place + static_cast<std::int64_t>(items.size_bytes());
    if (std::ssize(host_) < bytes_) host_.resize(static_cast<std::size_t>(2 * bytes_));
    if (!items.empty()) std::memcpy(host_.data() + place, items.data(), items.size_bytes());
    return place;
  }
  // Copies all of them to the device. Whatever read the last ones must have been enqueued.
  void send() {
    if (device_.bytes() < bytes_) {
      ctx_.synchronize();
      device_ = Buffer(std::max<std::int64_t>(2 * bytes_, 4096), ctx_.device());
    }
    copy_bytes(ctx_, device_.data(), ctx_.device(), host_.data(), Device::cpu(), bytes_);
  }
  // An array that was sent.
  Tensor tensor(std::int64_t place, DType dtype, std::initializer_list<std::int64_t> shape) const {
    return {static_cast<const void*>(writable(place, dtype, shape).data), dtype, shape,
            ctx_.device()};
  }
  // The same, for an op that changes it.
  Tensor writable(std::int64_t place, DType dtype,
                  std::initializer_list<std::int64_t> shape) const {
    return {static_cast<void*>(static_cast<char*>(device_.data()) + place), dtype, shape,
            ctx_.device()};
  }

 private:
  Context& ctx_;
  std::vector<char> host_;
  std::int64_t bytes_ = 0;
  Buffer device_;
};

}  // namespace tessera
