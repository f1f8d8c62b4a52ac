#include "cache/stream_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace tessera {
namespace {

using Kind = CachePolicy::Kind;

void require_positive(const char* name, std::int64_t value) {
  if (value >= 1) return;
  fail(ErrorCode::invalid_argument, "cache: {} is {}; it must be at least 1", name, value);
}

StreamRules rules_of(const CachePolicy& policy, std::int64_t max_tokens, std::int64_t page_size) {
  const std::int64_t n_sink = policy.kind == Kind::sinks ? policy.n_sink : 0;
  require_positive("page_size", page_size);
  if (n_sink < 0) {
    fail(ErrorCode::invalid_argument, "cache: {} attention sinks; there must be 0 or more", n_sink);
  }
  const bool is_full = policy.kind == Kind::full;
  const std::int64_t window = is_full ? max_tokens : policy.window;
  require_positive(is_full ? "max_tokens" : "window", window);
  checked_align(n_sink, page_size);
  return {n_sink, window, page_size, policy.kind == Kind::sinks};
}

}  // namespace

StreamLayout::StreamLayout(const CachePolicy& policy, std::int64_t max_tokens,
                           std::int64_t max_step, std::int64_t page_size)
    : StreamRules(rules_of(policy, max_tokens, page_size)) {
  require_positive("max_step", max_step);
  if (policy.kind == Kind::full) {
    line_pages_ = ceil_div(max_tokens, page_size);
  } else {
    // A step writes all its tokens before its first one reads the window before it. They may begin
    // anywhere in a page.
    const std::int64_t tokens = checked_add(policy.window - 1, max_step);
    line_pages_ = checked_align(checked_add(tokens, page_size - 1), page_size) / page_size;
  }
  const std::int64_t slots = checked_mul(checked_add(sink_pages(), line_pages_), page_size);
  if (slots > INT32_MAX) {
    fail(ErrorCode::invalid_argument,
         "cache: {} pages of {} tokens are too many; a cache holds up to {} tokens", max_pages(),
         page_size, INT32_MAX);
  }
}

std::int64_t StreamLayout::page_begin(std::int64_t i) const {
  const std::int64_t sinks = sink_pages();
  return i < sinks ? i * page_size() : n_sink() + (i - sinks) * page_size();
}

std::int64_t StreamLayout::page_end(std::int64_t i) const {
  return i < sink_pages() ? std::min((i + 1) * page_size(), n_sink()) : page_begin(i + 1);
}

}  // namespace tessera
