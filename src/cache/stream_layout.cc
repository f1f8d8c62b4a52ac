#include "cache/stream_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace tessera {
namespace {

void require_positive(const char* name, std::int64_t value) {
  if (value >= 1) return;
  fail(ErrorCode::invalid_argument, "cache: {} is {}; it must be at least 1", name, value);
}

}  // namespace

StreamLayout::StreamLayout(const CachePolicy& policy, std::int64_t max_tokens,
                           std::int64_t max_step, std::int64_t page_size)
    : n_sink_(policy.kind == CachePolicy::Kind::sinks ? policy.n_sink : 0),
      window_(policy.window),
      page_size_(page_size) {
  require_positive("page_size", page_size_);
  require_positive("max_step", max_step);
  if (n_sink_ < 0) {
    fail(ErrorCode::invalid_argument, "cache: {} attention sinks; there must be 0 or more",
         n_sink_);
  }
  if (policy.kind == CachePolicy::Kind::full) {
    require_positive("max_tokens", max_tokens);
    window_ = max_tokens;
    line_pages_ = ceil_div(window_, page_size_);
  } else {
    require_positive("window", window_);
    // A step writes all its tokens before its first one reads the window before it. They may begin
    // anywhere in a page.
    const std::int64_t tokens = checked_add(window_ - 1, max_step);
    line_pages_ = checked_align(checked_add(tokens, page_size_ - 1), page_size_) / page_size_;
  }
  sink_pages_ = checked_align(n_sink_, page_size_) / page_size_;
  const std::int64_t slots = checked_mul(checked_add(sink_pages_, line_pages_), page_size_);
  if (slots > INT32_MAX) {
    fail(ErrorCode::invalid_argument,
         "cache: {} pages of {} tokens are too many; a cache holds up to {} tokens", max_pages(),
         page_size_, INT32_MAX);
  }
}

std::int64_t StreamLayout::sink_pages_for(std::int64_t tokens) const {
  return ceil_div(std::min(tokens, n_sink_), page_size_);
}

std::int64_t StreamLayout::page_begin(std::int64_t i) const {
  return i < sink_pages_ ? i * page_size_ : n_sink_ + (i - sink_pages_) * page_size_;
}

std::int64_t StreamLayout::page_end(std::int64_t i) const {
  return i < sink_pages_ ? std::min((i + 1) * page_size_, n_sink_) : page_begin(i + 1);
}

std::int64_t StreamLayout::length(std::int64_t oldest, std::int64_t last) const {
  return last < n_sink_ ? last + 1 : n_sink_ + last - oldest + 1;
}

std::int64_t StreamLayout::hole_size(std::int64_t oldest, std::int64_t table_oldest) const {
  const std::int64_t line_begin = n_sink_ + line_page(table_oldest) * page_size_;
  return sink_pages_ * page_size_ - n_sink_ + oldest - line_begin;
}

}  // namespace tessera
