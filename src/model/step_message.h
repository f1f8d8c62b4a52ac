// A step of a cache as bytes, for other processes: numbers first, then the small tensors, which lie
// in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "core/fail.h"
#include "tessera/cache_batch.h"

namespace tessera::model {

class MessageWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  void append(std::span<const std::byte> bytes);
  void clear() { bytes_.clear(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) fail(ErrorCode::device, "a message of rank 0 is too short");
    const std::span<const std::byte> taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

// The block that holds the small tensors of a step, from the first to the end of the last.
struct StepBlock {
  char* begin = nullptr;
  std::int64_t bytes = 0;
};
StepBlock block_of(const CacheStep& step);

// Writes everything about the step except the contents of its tensors.
void write_step(MessageWriter& message, const CacheStep& step, const StepBlock& block);
// The step, with its tensors in `block`.
CacheStep read_step(MessageReader& message, const PagePool& pool, char* block);

}  // namespace tessera::model
