// A stream of tokens through a KvCache, beside the slowest possible model of its policy: a list of
// (token, key, value) from which tokens are erased.
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

// Attention alone, as a layer of a model would call it over a cache.
struct StreamShape {
  std::int64_t heads = 4, kv_heads = 2, dim = 16, rope_dims = 16;
  RopeStyle style = RopeStyle::half_split;
};

class AttentionStream {
 public:
  AttentionStream(Context& ctx, const StreamShape& shape, const KvCacheOptions& options);
  // The next tokens of the stream: their outputs, [tokens, heads, dim]. q, k and v of token t are
  // those of token_row().
  Array step(std::int64_t tokens);
  // The same with whatever q, k and v are in the buffers, and nothing read back.
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
  Buffer q_, k_, v_, out_, inv_freq_buffer_;
};

// Row of q (what = 0), k (1) or v (2) of token t, [heads, dim], in f32: the same for the same t.
std::vector<float> token_row(std::int64_t t, std::uint64_t what, std::int64_t n);

// What token `kept.back()` must see: float64 attention over these tokens, with positions 0, 1, ...
// [heads, dim]
Array attention_over(const std::vector<std::int64_t>& kept, const StreamShape& shape,
                     const Array& inv_freq);

// The keys that sequence b of a step sees, oldest first, as slots of the pools.
std::vector<std::int64_t> slots_of(Context& ctx, const CacheStep& step, std::int64_t b,
                                   std::int64_t page_size);

// The numbers of an i32 or i64 tensor on any device.
std::vector<std::int64_t> numbers_of(Context& ctx, const Tensor& tensor);

}  // namespace tessera::test
