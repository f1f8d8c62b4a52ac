// A copy of a tensor that a file stores unaligned, made at its first use: most tensors of most
// files are never used this way, and a copy takes memory that mapped bytes do not.
//
// Threads: any number may use it at the same time.
#pragma once

#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include "tessera/buffer.h"

namespace tessera::model {

class AlignedCopy {
 public:
  // The same bytes on every call. Throws Error (out_of_memory) if the copy does not fit.
  const std::byte* of(std::span<const std::byte> bytes) {
    std::call_once(made_, [&] {
      Buffer copy(static_cast<std::int64_t>(bytes.size()));
      std::memcpy(copy.data(), bytes.data(), bytes.size());
      copy_ = std::move(copy);
    });
    return static_cast<const std::byte*>(copy_.data());
  }

 private:
  std::once_flag made_;
  Buffer copy_;
};

}  // namespace tessera::model
