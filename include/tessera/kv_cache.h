// The keys and values of one stream of tokens: a PagePool of its own with one CacheSequence in it.
// tessera/page_pool.h says what the policies keep.
//
// Threads: one at a time for each cache; any number of caches at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/cache_batch.h"
#include "tessera/context.h"
#include "tessera/page_pool.h"
#include "tessera/tensor.h"

namespace tessera {

struct KvCacheOptions {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;  // as in PagePoolOptions
  CachePolicy policy{};
  std::int64_t max_tokens = 0;  // full: how many tokens fit; window and sinks: ignored
  std::int64_t max_step = 256;  // the most tokens of one step; window and sinks keep room for that
                                // many besides the tokens that stay
  std::int64_t page_size = 64;  // tokens per page
  std::shared_ptr<PoolWatcher> watcher{};  // of the pool; optional
};

// Bytes of the pool and of the small tensors of a cache with these options.
std::int64_t kv_cache_bytes(const KvCacheOptions& options);

class KvCache {
 public:
  KvCache(Context& ctx, const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  // How many of the next `wanted` tokens one step can take: see CacheSequence::step_size().
  std::int64_t step_size(std::int64_t wanted) const;
  // Makes room for the next tokens of the stream, at most step_size(), and asks for the logits of
  // the last `logit_rows` of them. The result is valid until the next call. The tokens count as
  // seen once it returns. If the pass fails half way, keys that later tokens would see were never
  // written: clear() the cache then.
  const CacheStep& step(Context& ctx, std::span<const std::int32_t> ids,
                        std::int64_t logit_rows = 1);

  // One layer: [pages, page_size, kv_heads, head_dim].
  Tensor keys(std::int64_t layer) const;
  Tensor values(std::int64_t layer) const;

  const KvCacheOptions& options() const;
  std::int64_t seen() const;   // tokens of the stream so far
  std::int64_t kept() const;   // tokens that the next one sees besides itself
  std::int64_t bytes() const;  // of the pool
  void clear();                // a new stream
  // Removes the last tokens of the latest step, so that `seen` remain.
  void truncate(std::int64_t seen);
  // Continues as if this many more tokens had been seen; their keys are missing. For counting the
  // memory that the steps of a stream need (Model::workspace_bytes).
  void skip(std::int64_t tokens);

  // The parts of the cache. They live as long as it does.
  PagePool& pool();
  CacheSequence& sequence();
  CacheBatch& batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
