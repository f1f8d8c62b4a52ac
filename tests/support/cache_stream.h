// A stream of tokens through a KvCache, and beside it the simplest possible model of its policy: a
// list of (token, key, value) from which tokens are erased.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/array.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/rotary.h"

namespace tessera::test {

using reference::Array;

// The tokens that the policy keeps.
class KeptTokens {
 public:
  explicit KeptTokens(const CachePolicy& policy) : policy_(policy) {}
  // Adds the next token of the stream, and erases the tokens that it does not see.
  void add();
  const std::vector<std::int64_t>& tokens() const { return tokens_; }

 private:
  CachePolicy policy_;
  std::vector<std::int64_t> tokens_;
  std::int64_t next_ = 0;
};

// Only the attention of a layer, called over a cache as a model would.
struct StreamShape {
  std::int64_t heads = 4, kv_heads = 2, dim = 16, rope_dims = 16;
  RopeStyle style = RopeStyle::half_split;
};

class AttentionStream {
 public:
  AttentionStream(Context& ctx, const StreamShape& shape, const KvCacheOptions& options);
  // Runs the next tokens of the stream and returns their outputs, [tokens, heads, dim]. token_row()
  // gives q, k and v of token t.
  Array step(std::int64_t tokens);
  // The same, with the q, k and v that are in the buffers, and without reading anything back.
  void run(std::int64_t tokens);

  KvCache& cache() { return cache_; }
  const Array& inv_freq() const { return inv_freq_; }

 private:
  Tensor upload(const Buffer& buffer, std::int64_t first, std::int64_t tokens, std::uint64_t what,
                std::int64_t heads);

  Context& ctx_;
  StreamShape shape_;
  KvCache cache_;
  Array inv_freq_;
  std::vector<std::int32_t> ids_;  // which do not matter here
  Buffer q_, k_, v_, out_, inv_freq_buffer_;
};

// Row of q (what = 0), k (1) or v (2) of token t, [heads, dim], in f32: the same for the same t.
std::vector<float> token_row(std::int64_t t, std::uint64_t what, std::int64_t n);

// The expected output of token `kept.back()`, [heads, dim]: float64 attention over these tokens, at
// positions 0, 1, ...
Array attention_over(const std::vector<std::int64_t>& kept, const StreamShape& shape,
                     const Array& inv_freq);

// The keys that sequence b of a group sees, oldest first, as slots of the pool.
std::vector<std::int64_t> slots_of(Context& ctx, const AttentionGroup& group, std::int64_t b,
                                   std::int64_t page_size);

// The numbers of an i32 or i64 tensor on any device.
std::vector<std::int64_t> numbers_of(Context& ctx, const Tensor& tensor);

}  // namespace tessera::test
