// Where x starts in the persistent kernel: the token's row of the embedding, as embedding() reads
// it, or what x holds. Three round trips to memory lead to the row: the id, the drawn id that it
// may stand for, and the row itself. The kernel has other work between them.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"

namespace tessera::cuda::decode {

// Numbers stay as they were loaded until the next step: to convert them is to wait for them.
class TokenId {
 public:
  // Requests the id.
  __device__ explicit TokenId(const TokenRow& token) : token_(token) {
    if (token.table == nullptr) return;
    if (token.is_wide) {
      given_ = *static_cast<const int2*>(token.id);
    } else {
      given_.x = *static_cast<const std::int32_t*>(token.id);
    }
  }
  // Requests what it stands for, as DrawnIds::id() says.
  __device__ void look_up() {
    const std::int64_t id = given();
    is_drawn_ = id < 0 && id >= -token_.drawn.count;
    if (is_drawn_) drawn_ = token_.drawn.ids[-1 - id];
  }
  // The memory from which x starts. Null if the id is out of range: then x is NaN.
  __device__ const void* start(const Call& call) const {
    if (token_.table == nullptr) return call.x;
    const std::int64_t id = is_drawn_ ? drawn_ : given();
    if (id < 0 || id >= token_.rows) return nullptr;
    return static_cast<const char*>(token_.table) + id * token_.row_bytes;
  }

 private:
  __device__ std::int64_t given() const {
    if (!token_.is_wide) return given_.x;
    return static_cast<std::int64_t>(given_.y) << 32 | static_cast<std::uint32_t>(given_.x);
  }

  const TokenRow& token_;
  int2 given_{};  // as i32: x; as i64: y has its upper half
  std::int32_t drawn_ = 0;
  bool is_drawn_ = false;
};

}  // namespace tessera::cuda::decode
