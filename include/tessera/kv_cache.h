// The keys and values of a stream of tokens: a pool of pages, and a policy that decides which
// tokens stay. The newest token sees itself and
//
//   full         every token before it; the cache refuses tokens past its end
//   window(n)    the n - 1 before it; keys are rotated by their position in the stream
//   sinks(s, n)  the first s of the stream and the n - 1 before it; keys are stored before RoPE and
//                rotated by their position in the cache as they are read. Up to token s + n - 1
//                that is the position in the stream. From there on it is 0 .. s - 1 for the sinks
//                and s .. s + n - 1 for the window, and the newest token is always at s + n - 1
//
// With window and sinks, memory and the work per token stay constant for streams of any length. A
// page whose tokens have all left is used again, and nothing is ever moved. Positions have 64 bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/attention.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/mask.h"
#include "tessera/tensor.h"

namespace tessera {

struct CachePolicy {
  enum class Kind : std::uint8_t { full, window, sinks };

  Kind kind = Kind::full;
  std::int64_t n_sink = 0;  // sinks
  std::int64_t window = 0;  // window, sinks

  static CachePolicy full() { return {}; }
  static CachePolicy last(std::int64_t window) { return {Kind::window, 0, window}; }
  static CachePolicy sinks(std::int64_t n_sink, std::int64_t window) {
    return {Kind::sinks, n_sink, window};
  }
};

// "full", "window(1024)", "sinks(4, 1020)"
std::string to_string(const CachePolicy& policy);

struct KvCacheOptions {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;
  CachePolicy policy{};
  std::int64_t max_tokens = 0;  // full: how many tokens fit; window and sinks: ignored
  std::int64_t max_step = 256;  // the most tokens of one step; window and sinks keep room for that
                                // many besides the tokens that stay
  std::int64_t page_size = 64;  // tokens per page
};

// Bytes of the pools and of the small tensors of a cache with these options.
std::int64_t kv_cache_bytes(const KvCacheOptions& options);

// What one forward pass over the next tokens of the stream writes and reads. Valid until the next
// call of step(). The small tensors are on the cache's device.
//
//   rotate q (and k, unless rope_on_read) by `positions`
//   kv_append(k, v, slots) into keys(layer), values(layer)
//   attention(q as [batch, tokens / batch, heads, dim], keys(layer), values(layer), pages, mask)
//
// The step counts as taken once step() returns. If a pass fails half way, keys that later tokens
// would see were never written: clear() the cache then.
struct CacheStep {
  std::int64_t tokens = 0;
  Tensor positions{};         // i64 [tokens]
  Tensor slots{};             // i32 [tokens]: page * page_size + row, of the pools
  bool rope_on_read = false;  // keys are stored before RoPE
  std::int64_t batch = 1;     // `tokens` if each token sees a cache of its own (rolling sinks)
  PageTable pages{};          // for `batch` sequences
  Mask mask{};                // what the policy lets a query see, causal included
  std::int64_t max_keys = 0;  // of the longest sequence
};

class KvCache {
 public:
  KvCache(Context& ctx, const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  // How many of the next `wanted` tokens one step can take: at least one (if any are wanted), at
  // most max_step, and fewer just before sinks begin to roll, so that no step spans that. Throws if
  // a full cache has no room for `wanted` more, with the limit and what to do about it.
  std::int64_t step_size(std::int64_t wanted) const;
  // Makes room for the next `tokens` tokens of the stream; at most step_size().
  CacheStep step(Context& ctx, std::int64_t tokens);

  // The pools of one layer: [pages, page_size, kv_heads, head_dim].
  Tensor keys(std::int64_t layer) const;
  Tensor values(std::int64_t layer) const;

  const KvCacheOptions& options() const;
  std::int64_t seen() const;   // tokens of the stream so far
  std::int64_t kept() const;   // tokens that the next one sees besides itself
  std::int64_t bytes() const;  // of the pools
  void clear();                // a new stream
  // Continues as if this many more tokens had been seen; their keys are missing. For computing what
  // the steps of a stream need (Model::workspace_bytes).
  void skip(std::int64_t tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
