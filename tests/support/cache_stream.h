// A stream of tokens through a KvCache, beside the slowest possible model of its policy: a list of
// (token, key, value) from which tokens are erased.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/array.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"

namespace tessera::test {

using reference::Array;

// q, k and v of token t, in f32 precision: the same for the same t, [heads, dim].
struct TokenRows {
  std::vector<float> q, k, v;
};
TokenRows token_rows(std::int64_t t, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim);

// The tokens that stay.
class KeptTokens {
 public:
  explicit KeptTokens(const CachePolicy& policy) : policy_(policy) {}
  // The next token of the stream comes, and those that it does not see leave.
  void add();
  const std::vector<std::int64_t>& tokens() const { return tokens_; }

 private:
  CachePolicy policy_;
  std::vector<std::int64_t> tokens_;
  std::int64_t next_ = 0;
};

// The keys that sequence b of a step sees, oldest first, as slots of the pools.
std::vector<std::int64_t> slots_of(Context& ctx, const CacheStep& step, std::int64_t b,
                                   std::int64_t page_size);

// The numbers of an i32 or i64 tensor on any device.
std::vector<std::int64_t> numbers_of(Context& ctx, const Tensor& tensor);

}  // namespace tessera::test
