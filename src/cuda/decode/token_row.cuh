// Where x starts in the persistent kernel: the token's row of the embedding, as embedding() reads
// it, or what x holds. Three round trips to memory lead to the row: the id, the drawn id that it
// may stand for, and the row itself. The kernel has other work between these functions.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"

namespace tessera::cuda::decode {

__device__ inline std::int64_t given_id(const TokenRow& token) {
  if (token.table == nullptr) return 0;
  return token.is_wide ? *static_cast<const std::int64_t*>(token.id)
                       : *static_cast<const std::int32_t*>(token.id);
}

// Null if the id is out of range: then x is NaN.
__device__ inline const void* start_of(const Call& call, std::int64_t id) {
  const TokenRow& token = call.token;
  if (token.table == nullptr) return call.x;
  if (id < 0 || id >= token.rows) return nullptr;
  return static_cast<const char*>(token.table) + id * token.row_bytes;
}

}  // namespace tessera::cuda::decode
