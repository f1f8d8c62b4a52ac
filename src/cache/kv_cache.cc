#include "tessera/kv_cache.h"

#include "core/checked.h"

namespace tessera {
namespace {

std::int64_t pages_of(const KvCacheOptions& options) {
  return CacheSequence::max_pages(options.policy, options.max_tokens, options.max_step,
                                  options.page_size);
}

PagePoolOptions pool_options(const KvCacheOptions& options) {
  return {.layers = options.layers,
          .kv_heads = options.kv_heads,
          .head_dim = options.head_dim,
          .dtype = options.dtype,
          .pages = pages_of(options),
          .page_size = options.page_size,
          .prefix_cache = false,
          .watcher = options.watcher};
}

// The table is as wide as the stream is long so far, and not as wide as it may get: a GPU plans by
// the width, and keys that may come one day must not cost anything now.
CacheBatchLimits batch_limits(const KvCacheOptions& options) {
  return {.max_tokens = options.max_step,
          .max_sequences = 1,
          .max_pages_of_a_sequence = pages_of(options),
          .few_widths = true};
}

}  // namespace

std::int64_t kv_cache_bytes(const KvCacheOptions& options) {
  return checked_add(page_pool_bytes(pool_options(options)),
                     cache_batch_bytes(batch_limits(options)));
}

struct KvCache::State {
  State(Context& ctx, const KvCacheOptions& given)
      : options(given),
        pool(ctx, pool_options(options)),
        sequence(pool, options.policy, options.max_tokens, options.max_step),
        batch(ctx, pool, batch_limits(options)) {}

  KvCacheOptions options;
  PagePool pool;
  CacheSequence sequence;
  CacheBatch batch;
};

KvCache::KvCache(Context& ctx, const KvCacheOptions& options)
    : state_(std::make_unique<State>(ctx, options)) {}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

std::int64_t KvCache::step_size(std::int64_t wanted) const {
  return state_->sequence.step_size(wanted);
}

const CacheStep& KvCache::step(Context& ctx, std::span<const std::int32_t> ids,
                               std::int64_t logit_rows) {
  const CacheBatch::Part part{&state_->sequence, ids, logit_rows};
  return state_->batch.step(ctx, {&part, 1});
}

Tensor KvCache::keys(std::int64_t layer) const { return state_->pool.keys(layer); }
Tensor KvCache::values(std::int64_t layer) const { return state_->pool.values(layer); }
const KvCacheOptions& KvCache::options() const { return state_->options; }
std::int64_t KvCache::seen() const { return state_->sequence.seen(); }
std::int64_t KvCache::kept() const { return state_->sequence.kept(); }
std::int64_t KvCache::bytes() const { return state_->pool.bytes(); }
PagePool& KvCache::pool() { return state_->pool; }
CacheSequence& KvCache::sequence() { return state_->sequence; }
CacheBatch& KvCache::batch() { return state_->batch; }
void KvCache::clear() { state_->sequence.clear(); }
void KvCache::truncate(std::int64_t seen) { state_->sequence.truncate(seen); }
void KvCache::skip(std::int64_t tokens) { state_->sequence.skip(tokens); }

}  // namespace tessera
