// The memory for keys and values of many streams of tokens. A PagePool has pages. A CacheSequence
// is one stream in it: a page table, and a policy that decides which tokens stay. Sequences of any
// policies share one pool.
//
//   pool       | 0 | 1 | 2 | 3 | 4 | 5 | 6 | ...      pages of `page_size` tokens, for all layers
//   sequence A   0   1   2                            pages are counted: a fork shares them, and
//   sequence B   0   1       3                        whoever writes into a shared one copies it
//
// Whole pages can be found again by their tokens and all tokens before them, until their room is
// needed (find_prefix).
//
// Threads: one at a time for a pool and its sequences, with Contexts of one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/context.h"
#include "tessera/dtype.h"
#include "tessera/tensor.h"

namespace tessera {

class PrefixIndex;   // src/cache/prefix_index.h
class StreamLayout;  // src/cache/stream_layout.h

// What the newest token of a stream sees besides itself:
//
//   full         every token before it; the sequence refuses tokens past its end
//   window(n)    the n - 1 before it; keys are rotated by their position in the stream
//   sinks(s, n)  the first s of the stream and the n - 1 before it; keys are stored before RoPE and
//                rotated by their position in the cache as they are read. Up to token s + n - 1
//                that is the position in the stream. From there on it is 0 .. s - 1 for the sinks
//                and s .. s + n - 1 for the window, and the newest token is always at s + n - 1
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
  bool operator==(const CachePolicy&) const = default;
};

// "full", "window(1024)", "sinks(4, 1020)"
std::string to_string(const CachePolicy& policy);

// Pages that are spread over several processes (context parallelism), in a zigzag: with three
// processes, pages 0, 1, 2, 3, 4, ... belong to 0, 1, 2, 2, 1, 0, 0, 1, ... Page numbers count the
// whole pool; each process has memory for its own pages.
struct PageShare {
  int rank = 0, size = 1;

  int owner(std::int64_t page) const {
    const auto at = static_cast<int>(page % (2 * size));
    return at < size ? at : 2 * size - 1 - at;
  }
  bool is_own(std::int64_t page) const { return owner(page) == rank; }
  // The place of a page among those of its owner.
  std::int64_t local(std::int64_t page) const {
    return 2 * (page / (2 * size)) + (page % (2 * size) >= size ? 1 : 0);
  }
  // How many of `pages` pages each process keeps.
  std::int64_t kept(std::int64_t pages) const {
    return size == 1 ? pages : 2 * ((pages + 2 * size - 1) / (2 * size));
  }
};

// Learns which pages a pool copies; what is written into pages follows from the steps. For models
// whose cache has a copy or a part in other processes.
class PoolWatcher {
 public:
  virtual ~PoolWatcher() = default;  // the pool has ended
  // The pool copies a page, unless its pages are spread: then the watcher has to see to the copy.
  virtual void copied(std::int32_t from, std::int32_t to) = 0;
  virtual PageShare share() const { return {}; }
};

struct PagePoolOptions {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;  // f32, f16, bf16; f8e4m3 or i8 with a scale for each token and head
  std::int64_t pages = 0;
  std::int64_t page_size = 64;             // tokens per page
  bool prefix_cache = true;                // whole pages can be found again
  std::shared_ptr<PoolWatcher> watcher{};  // optional

  PageShare share() const { return watcher ? watcher->share() : PageShare{}; }
};

// Bytes of the keys and values of all pages, and of their scales.
std::int64_t page_pool_bytes(const PagePoolOptions& options);

// Since the pool was made.
struct PrefixStats {
  std::int64_t lookups = 0;       // calls of find_prefix()
  std::int64_t asked_tokens = 0;  // that they looked for
  std::int64_t hit_tokens = 0;    // that they found
  std::int64_t evictions = 0;     // pages that were given up to make room
  std::int64_t pages = 0;         // that can be found now
};

class PagePool {
 public:
  // Throws Error (out_of_memory) if the device has no room. While the Context's workspace only
  // counts, the pages have addresses but no memory.
  PagePool(Context& ctx, const PagePoolOptions& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // One layer: [pages, page_size, kv_heads, head_dim]. For a pool that is spread over processes:
  // its own pages.
  Tensor keys(std::int64_t layer) const;
  Tensor values(std::int64_t layer) const;
  // For 8-bit pools: f32 [pages, kv_heads, page_size]. Empty for all others.
  Tensor key_scales(std::int64_t layer) const;
  Tensor value_scales(std::int64_t layer) const;

  const PagePoolOptions& options() const;
  Device device() const;
  std::int64_t bytes() const;

  // Pages that take() can give: all that nobody holds, including those that are kept because they
  // may be found again.
  std::int64_t free_pages() const;
  std::int64_t used_pages() const;  // pages that somebody holds
  PrefixStats prefix_stats() const;

  // Takes a page that nobody holds and makes the caller its one holder. A page that nobody can find
  // goes first, else the findable one that was released longest ago. Throws Error (out_of_memory)
  // if there is none.
  std::int32_t take();
  void share(std::int32_t page);    // one more holder
  void release(std::int32_t page);  // one holder fewer
  std::int64_t holders(std::int32_t page) const;
  // Copies keys and values of all layers, on the Context's stream.
  void copy_page(Context& ctx, std::int32_t from, std::int32_t to) const;

 private:
  friend class CacheSequence;
  struct State;
  std::unique_ptr<State> state_;
};

// One stream of tokens. With window and sinks, memory and the work per token stay constant for
// streams of any length: a page whose tokens have all left is reused, by this stream or another,
// and nothing is moved. Positions have 64 bits.
class CacheSequence {
 public:
  // `max_tokens`: how many tokens a full sequence takes; window and sinks: ignored. `max_step`: the
  // most tokens of one step. The pool must outlive the sequence. No page is taken yet.
  CacheSequence(PagePool& pool, const CachePolicy& policy, std::int64_t max_tokens,
                std::int64_t max_step = 256);
  ~CacheSequence();
  CacheSequence(CacheSequence&& other) noexcept;
  CacheSequence& operator=(CacheSequence&& other) noexcept;
  CacheSequence(const CacheSequence&) = delete;
  CacheSequence& operator=(const CacheSequence&) = delete;

  // A second stream that begins with the same tokens. Both hold the same pages; the first that
  // writes into one copies it.
  CacheSequence fork() const;
  // For an empty sequence: takes whole pages of `ids` that other sequences of the same policy have
  // computed, and continues after them. It takes at most ids.size() - 1 tokens, so that one is left
  // to compute, and only pages from which no token had left. Returns the number of tokens.
  std::int64_t find_prefix(std::span<const std::int32_t> ids);

  const CachePolicy& policy() const { return policy_; }
  std::int64_t max_tokens() const { return max_tokens_; }
  std::int64_t max_step() const { return max_step_; }
  std::int64_t seen() const { return seen_; }  // tokens of the stream so far
  std::int64_t kept() const;                   // tokens that the next one sees besides itself
  std::int64_t pages() const;                  // pages held
  bool has_room() const;                       // for one more token

  // How many of the next `wanted` tokens one step can take: at least one (if any are wanted), at
  // most max_step, and fewer just before sinks begin to roll, so that no step crosses that point.
  // Throws if a full sequence has no room for `wanted` more; the message has the limit and what to
  // do about it.
  std::int64_t step_size(std::int64_t wanted) const;
  // How many free pages the next `tokens` tokens need: new ones and copies of shared ones, less
  // those that go back to the pool first.
  std::int64_t pages_for(std::int64_t tokens) const;
  // The most pages that a sequence of this policy ever holds.
  static std::int64_t max_pages(const CachePolicy& policy, std::int64_t max_tokens,
                                std::int64_t max_step, std::int64_t page_size);

  // Sets the id of a token that went into its step under a placeholder (EmbeddingArgs::drawn).
  void set_id(std::int64_t token, std::int32_t id);
  // Releases the pages; a new stream begins.
  void clear();
  // Removes the last tokens, so that `seen` remain. The sequence is then as it was at that length.
  // Only tokens of the latest step can be removed; a full sequence in a pool without a prefix cache
  // may go back to any length.
  void truncate(std::int64_t seen);
  // Continues as if this many more tokens had been seen; their keys are missing. For counting the
  // memory that the steps of a stream need (Model::workspace_bytes).
  void skip(std::int64_t tokens);

 private:
  friend class CacheBatch;
  struct Plan;

  // A step of many sequences plans all, in two passes, and then changes all or undoes the plans.
  Plan plan_leaving(std::int64_t tokens) const;
  void plan_pages(std::int64_t tokens, Plan& plan) const;
  void plan_page_to_write(Plan& plan) const;
  void begin_plan(const Plan& plan);
  void undo_plan(const Plan& plan);
  void take_pages(Context& ctx, const Plan& plan);
  void add_tokens(std::span<const std::int32_t> ids);
  void index_whole_pages();

  std::int32_t page_of(std::int64_t token) const;
  void release_all() noexcept;

  PagePool* pool_;
  CachePolicy policy_;
  std::int64_t max_tokens_, max_step_;
  std::unique_ptr<StreamLayout> layout_;
  std::int64_t seen_ = 0;
  std::int64_t step_begin_ = 0;       // tokens seen before the latest step
  std::vector<std::int32_t> sinks_;   // pages of the sinks
  std::vector<std::int32_t> line_;    // pages of the other tokens, from line_begin_ on
  std::int64_t line_begin_ = 0;       // pages of the line that have left
  std::vector<std::uint64_t> chain_;  // the index's entries for the first pages of the stream
  std::vector<std::int32_t> ids_;     // the tokens from ids_begin_ on, for the index
  std::int64_t ids_begin_ = 0;
};

}  // namespace tessera
