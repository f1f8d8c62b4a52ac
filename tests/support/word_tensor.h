// Structs on a device, as ops read them: an i64 tensor whose rows are the structs' bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::test {

// [items, words], with `padding` words between the rows.
template <typename T>
class WordTensor {
 public:
  WordTensor(Context& ctx, const std::vector<T>& items, std::int64_t padding = 0)
      : buffer_(DType::i64, {std::ssize(items) + 1, kWords + padding}, ctx.device()) {
    std::vector<std::int64_t> words(
        static_cast<std::size_t>((std::ssize(items) + 1) * (kWords + padding)), 0x5a5a5a5a);
    for (std::size_t i = 0; i < items.size(); ++i) {
      std::memcpy(&words[i * static_cast<std::size_t>(kWords + padding)], &items[i], sizeof(T));
    }
    copy_bytes(ctx, buffer_.data(), ctx.device(), words.data(), Device::cpu(), buffer_.bytes());
    view_ = buffer_.tensor().slice(0, 0, std::ssize(items)).slice(1, 0, kWords);
  }
  operator const Tensor&() const { return view_; }

 private:
  static constexpr std::int64_t kWords = sizeof(T) / sizeof(std::int64_t);
  Buffer buffer_;
  Tensor view_;
};

}  // namespace tessera::test
