// Where the tokens of a stream lie in the pages of a cache, and which of them a token sees. Every
// policy is one picture: the sinks in pages of their own, then a ring of pages for the rest.
//
//   pool      | sinks . | ring 0 | ring 1 | ring 2 | ring 3 |
//
//   sequence  | sinks . | . . 7 8 | 9 ...  |  .. t     |        the ring from its oldest page on
//                     ^^^^^^^^^^
//                     the hole: what the sinks leave of their last page, and tokens of the oldest
//                     page that have left
//
// full: no sinks, and a ring that never comes round. window: no sinks.
#pragma once

#include <cstdint>

#include "tessera/kv_cache.h"

namespace tessera {

class StreamLayout {
 public:
  // Checks the options that decide the layout.
  explicit StreamLayout(const KvCacheOptions& options);

  std::int64_t pages() const { return sink_pages_ + ring_pages_; }  // of a pool, and of the table
  std::int64_t page_size() const { return page_size_; }
  std::int64_t n_sink() const { return n_sink_; }
  // Where the newest token of a stream that has outgrown the cache stands in it.
  std::int64_t last_position() const { return n_sink_ + window_ - 1; }

  // The slot of the pool that token t is written to.
  std::int64_t slot(std::int64_t t) const;
  // The oldest token behind the sinks that token t sees, or n_sink where it sees none.
  std::int64_t oldest(std::int64_t t) const;
  // A sequence whose oldest token behind the sinks is `oldest`: entry i of its page table, and how
  // many entries it needs to reach token `last`.
  std::int64_t table_entry(std::int64_t i, std::int64_t oldest) const;
  std::int64_t table_size(std::int64_t oldest, std::int64_t last) const;
  // Keys of a sequence that ends with token `last`: the sinks, and the tokens from `oldest` on.
  std::int64_t length(std::int64_t oldest, std::int64_t last) const;
  // The slots that such a sequence leaves out at n_sink, in the table of one whose oldest token is
  // `table_oldest`.
  std::int64_t hole_size(std::int64_t oldest, std::int64_t table_oldest) const;

  // Do all tokens up to t fit?
  bool fits(std::int64_t t) const { return t <= last_position(); }

 private:
  // The page of the ring's endless line of pages that token t lies in, t >= n_sink.
  std::int64_t line_page(std::int64_t t) const { return (t - n_sink_) / page_size_; }

  std::int64_t n_sink_, window_, page_size_;
  std::int64_t sink_pages_, ring_pages_;
};

}  // namespace tessera
