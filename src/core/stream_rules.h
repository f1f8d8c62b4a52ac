// Where the tokens of a stream lie in the pages of a sequence, and which of them a token sees: the
// arithmetic of every policy, for the host and for kernels. All policies share one picture: the
// sinks in pages of their own, then an endless line of pages for the rest, the first of which have
// left.
//
//   pages     | sinks . | line 0 | line 1 | line 2 | line 3 |
//
//   sequence  | sinks . |                 | . . 7 8 | 9 .. t |       the line from its first page
//                     ^^^^^^^^^^^^^^^^^^^^^^^^^^
//                     the hole: the unused end of the sinks' last page, and tokens of the line's
//                     first pages that have left
//
// full: no sinks, and nothing leaves. window: no sinks.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tessera {

class StreamRules {
 public:
  StreamRules() = default;
  // `in_cache`: tokens are rotated by their place in the cache, not by their place in the stream.
  StreamRules(std::int64_t n_sink, std::int64_t window, std::int64_t page_size, bool in_cache)
      : n_sink_(n_sink), window_(window), page_size_(page_size), in_cache_(in_cache ? 1 : 0) {}

  TESSERA_HOST_DEVICE std::int64_t page_size() const { return page_size_; }
  TESSERA_HOST_DEVICE std::int64_t n_sink() const { return n_sink_; }
  TESSERA_HOST_DEVICE std::int64_t sink_pages() const { return pages_of(n_sink_); }
  // Pages for the sinks among the first `tokens` tokens.
  TESSERA_HOST_DEVICE std::int64_t sink_pages_for(std::int64_t tokens) const {
    return pages_of(tokens < n_sink_ ? tokens : n_sink_);
  }
  // The place of the newest token in the cache, once the stream has outgrown it.
  TESSERA_HOST_DEVICE std::int64_t last_position() const { return n_sink_ + window_ - 1; }
  // Do all tokens up to t fit?
  TESSERA_HOST_DEVICE bool fits(std::int64_t t) const { return t <= last_position(); }
  // The position by which token t is rotated.
  TESSERA_HOST_DEVICE std::int64_t position(std::int64_t t) const {
    return in_cache_ == 0 || fits(t) ? t : last_position();
  }

  // The page of the line that token t lies in, t >= n_sink.
  TESSERA_HOST_DEVICE std::int64_t line_page(std::int64_t t) const {
    return (t - n_sink_) / page_size_;
  }
  // The place of its page among those of a sequence whose line begins with page `line_begin`.
  TESSERA_HOST_DEVICE std::int64_t place(std::int64_t t, std::int64_t line_begin) const {
    return t < n_sink_ ? t / page_size_ : sink_pages() + line_page(t) - line_begin;
  }
  // Its row in its page, for any t.
  TESSERA_HOST_DEVICE std::int64_t row(std::int64_t t) const {
    return (t < n_sink_ ? t : t - n_sink_) % page_size_;
  }

  // The oldest token after the sinks that token t sees, or n_sink if it sees none.
  TESSERA_HOST_DEVICE std::int64_t oldest(std::int64_t t) const {
    const std::int64_t first = t - window_ + 1;
    return first > n_sink_ ? first : n_sink_;
  }
  // Keys of a sequence that ends with token `last`: the sinks, and the tokens from `oldest` on.
  TESSERA_HOST_DEVICE std::int64_t length(std::int64_t oldest, std::int64_t last) const {
    return last < n_sink_ ? last + 1 : n_sink_ + last - oldest + 1;
  }
  // The slots that such a sequence leaves out at n_sink, if its line begins with page `line_begin`.
  TESSERA_HOST_DEVICE std::int64_t hole_size(std::int64_t oldest, std::int64_t line_begin) const {
    return (sink_pages() - line_begin) * page_size_ + oldest - 2 * n_sink_;
  }

 private:
  TESSERA_HOST_DEVICE std::int64_t pages_of(std::int64_t tokens) const {
    return (tokens + page_size_ - 1) / page_size_;
  }

  std::int64_t n_sink_ = 0, window_ = 1, page_size_ = 1, in_cache_ = 0;
};

}  // namespace tessera
