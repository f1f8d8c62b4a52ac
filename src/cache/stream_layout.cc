#include "cache/stream_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace tessera {
namespace {

void require_positive(const char* name, std::int64_t value) {
  if (value >= 1) return;
  fail(ErrorCode::invalid_argument, "KvCache: {} is {}; it must be at least 1", name, value);
}

}  // namespace

StreamLayout::StreamLayout(const KvCacheOptions& options)
    : n_sink_(options.policy.kind == CachePolicy::Kind::sinks ? options.policy.n_sink : 0),
      window_(options.policy.window),
      page_size_(options.page_size) {
  require_positive("page_size", page_size_);
  require_positive("max_step", options.max_step);
  if (n_sink_ < 0) {
    fail(ErrorCode::invalid_argument, "KvCache: {} attention sinks; there must be 0 or more",
         n_sink_);
  }
  if (options.policy.kind == CachePolicy::Kind::full) {
    require_positive("max_tokens", options.max_tokens);
    window_ = options.max_tokens;
    ring_pages_ = ceil_div(window_, page_size_);
  } else {
    require_positive("window", window_);
    // A step writes all its tokens before its first one reads the window before it. They may begin
    // anywhere in a page.
    const std::int64_t tokens = checked_add(window_ - 1, options.max_step);
    ring_pages_ = checked_align(checked_add(tokens, page_size_ - 1), page_size_) / page_size_;
  }
  sink_pages_ = checked_align(n_sink_, page_size_) / page_size_;
  const std::int64_t slots = checked_mul(checked_add(sink_pages_, ring_pages_), page_size_);
  if (slots > INT32_MAX) {
    fail(ErrorCode::invalid_argument,
         "KvCache: {} pages of {} tokens are too many; a cache holds up to {} tokens", pages(),
         page_size_, INT32_MAX);
  }
}

std::int64_t StreamLayout::slot(std::int64_t t) const {
  if (t < n_sink_) return t;
  const std::int64_t page = sink_pages_ + line_page(t) % ring_pages_;
  return page * page_size_ + (t - n_sink_) % page_size_;
}

std::int64_t StreamLayout::oldest(std::int64_t t) const {
  return std::max(n_sink_, t - window_ + 1);
}

std::int64_t StreamLayout::table_entry(std::int64_t i, std::int64_t oldest) const {
  if (i < sink_pages_) return i;
  return sink_pages_ + (line_page(oldest) + i - sink_pages_) % ring_pages_;
}

std::int64_t StreamLayout::table_size(std::int64_t oldest, std::int64_t last) const {
  if (last < n_sink_) return last / page_size_ + 1;
  return sink_pages_ + line_page(last) - line_page(oldest) + 1;
}

std::int64_t StreamLayout::length(std::int64_t oldest, std::int64_t last) const {
  return last < n_sink_ ? last + 1 : n_sink_ + last - oldest + 1;
}

std::int64_t StreamLayout::hole_size(std::int64_t oldest, std::int64_t table_oldest) const {
  const std::int64_t line_begin = n_sink_ + line_page(table_oldest) * page_size_;
  return sink_pages_ * page_size_ - n_sink_ + oldest - line_begin;
}

}  // namespace tessera
