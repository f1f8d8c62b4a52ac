// Where the tokens of a stream lie in the pages of a sequence, and which of them a token sees.
// Every policy is one picture: the sinks in pages of their own, then an endless line of pages for
// the rest, of which the first have left.
//
//   pages     | sinks . | line 0 | line 1 | line 2 | line 3 |
//
//   sequence  | sinks . |                 | . . 7 8 | 9 .. t |       the line from its oldest page
//   on
//                     ^^^^^^^^^^^^^^^^^^^^^^^^^^
//                     the hole: what the sinks leave of their last page, and tokens of the oldest
//                     page that have left
//
// full: no sinks, and nothing leaves. window: no sinks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/page_pool.h"

namespace tessera {

class StreamLayout {
 public:
  // Checks the sizes. `max_tokens` is for a full sequence.
  StreamLayout(const CachePolicy& policy, std::int64_t max_tokens, std::int64_t max_step,
               std::int64_t page_size);

  std::int64_t max_pages() const { return sink_pages_ + line_pages_; }  // held at any time
  std::int64_t page_size() const { return page_size_; }
  std::int64_t n_sink() const { return n_sink_; }
  // Where the newest token of a stream that has outgrown the cache stands in it.
  std::int64_t last_position() const { return n_sink_ + window_ - 1; }
  // Do all tokens up to t fit?
  bool fits(std::int64_t t) const { return t <= last_position(); }

  // The page of the line that token t lies in, t >= n_sink.
  std::int64_t line_page(std::int64_t t) const { return (t - n_sink_) / page_size_; }
  // Its row in its page, for any t.
  std::int64_t row(std::int64_t t) const { return (t < n_sink_ ? t : t - n_sink_) % page_size_; }
  // Pages for the sinks among the first `tokens` tokens.
  std::int64_t sink_pages_for(std::int64_t tokens) const;
  // The tokens of page i, where the sinks' pages and then the line's are counted.
  std::int64_t page_begin(std::int64_t i) const;
  std::int64_t page_end(std::int64_t i) const;

  // The oldest token behind the sinks that token t sees, or n_sink where it sees none.
  std::int64_t oldest(std::int64_t t) const { return std::max(n_sink_, t - window_ + 1); }
  // Keys of a sequence that ends with token `last`: the sinks, and the tokens from `oldest` on.
  std::int64_t length(std::int64_t oldest, std::int64_t last) const;
  // The slots that such a sequence leaves out at n_sink, in the table of one whose oldest token is
  // `table_oldest`.
  std::int64_t hole_size(std::int64_t oldest, std::int64_t table_oldest) const;

 private:
  std::int64_t n_sink_, window_, page_size_;
  std::int64_t sink_pages_ = 0, line_pages_ = 0;
};

}  // namespace tessera
