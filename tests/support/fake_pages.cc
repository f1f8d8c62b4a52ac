#include "support/fake_pages.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::test {

using engine::RequestId;
using engine::StepCost;

FakePages::FakePages(std::int64_t total_pages, std::int64_t page_size, std::int64_t max_step)
    : page_size_(page_size),
      max_step_(max_step),
      pages_(static_cast<std::size_t>(total_pages)),
      free_pages_([this] { return free_pages(); }),
      next_step_([this](RequestId id, std::int64_t wanted) { return next_step(id, wanted); }),
      to_store_([this](RequestId id, std::int64_t tokens) { return to_store(id, tokens); }),
      release_([this](RequestId id) { release(id); }) {
  for (std::int64_t i = total_pages; i-- > 0;) free_.push_back(static_cast<std::int32_t>(i));
}

std::int64_t FakePages::max_pages(const CachePolicy& policy, std::int64_t tokens) const {
  const std::int64_t all = pages_of(tokens);
  if (policy.kind == CachePolicy::Kind::full) return all;
  const std::int64_t n_sink = policy.kind == CachePolicy::Kind::sinks ? policy.n_sink : 0;
  return std::min(all, pages_of(n_sink) + pages_of(policy.window - 1 + max_step_) + 1);
}

void FakePages::add(RequestId id, const FakeContent& content) { waiting_[id] = content; }

void FakePages::remove(RequestId id) {
  waiting_.erase(id);
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  for (std::int32_t& page : found->second.table) drop(page);
  sequences_.erase(found);
}

void FakePages::release(RequestId id) {
  if (on_release) on_release(id);
  const FakeContent content = sequences_.at(id).content;
  remove(id);
  add(id, content);
}

std::int64_t FakePages::start(RequestId id, std::int64_t known) {
  Sequence& s = sequences_[id];
  s.content = waiting_.at(id);
  waiting_.erase(id);
  const std::int64_t count = hits(id, s.content, known);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t page = cached_.at(key(id, s.content, i));
    Page& p = pages_[static_cast<std::size_t>(page)];
    if (p.holders++ == 0) --idle_count_;
    p.idle_since = -1;
    s.table.push_back(page);
  }
  s.whole_pages = count;
  s.stored = count * page_size_;
  return s.stored;
}

void FakePages::fork(RequestId child, RequestId parent) {
  Sequence copy = sequences_.at(parent);
  for (const std::int32_t page : copy.table) {
    if (page >= 0) ++pages_[static_cast<std::size_t>(page)].holders;
  }
  sequences_[child] = std::move(copy);
}

// The places in its table whose tokens its next token does not see: [first, last).
std::pair<std::int64_t, std::int64_t> FakePages::leaving(const Sequence& s) const {
  const CachePolicy& policy = s.content.policy;
  if (policy.kind == CachePolicy::Kind::full) return {0, 0};
  const std::int64_t sinks = policy.kind == CachePolicy::Kind::sinks ? pages_of(policy.n_sink) : 0;
  const std::int64_t last = std::max(sinks, (s.stored - policy.window + 1) / page_size_);
  std::int64_t first = last;
  while (first > sinks && s.table[static_cast<std::size_t>(first - 1)] >= 0) --first;
  return {first, last};
}

void FakePages::leave(RequestId id) {
  Sequence& s = sequences_.at(id);
  const auto [first, last] = leaving(s);
  for (std::int64_t i = first; i < last; ++i) drop(s.table[static_cast<std::size_t>(i)]);
}

void FakePages::store(RequestId id, std::int64_t tokens) {
  Sequence& s = sequences_.at(id);
  if (copies_on_write(s)) {
    const std::int32_t copy = take();
    drop(s.table.back());
    s.table.back() = copy;
  }
  while (static_cast<std::int64_t>(s.table.size()) < pages_of(s.stored + tokens)) {
    s.table.push_back(take());
  }
  s.stored += tokens;
}

void FakePages::settle(RequestId id, std::int64_t rejected) {
  Sequence& s = sequences_.at(id);
  s.stored -= rejected;
  while (static_cast<std::int64_t>(s.table.size()) > pages_of(s.stored)) {
    drop(s.table.back());
    s.table.pop_back();
  }
  if (s.content.policy.kind != CachePolicy::Kind::full) return;
  for (std::int64_t i = s.whole_pages; i < s.stored / page_size_; ++i) {
    const std::int32_t page = s.table[static_cast<std::size_t>(i)];
    if (!cached_.emplace(key(id, s.content, i), page).second) continue;
    pages_[static_cast<std::size_t>(page)].cached = true;
    pages_[static_cast<std::size_t>(page)].key = key(id, s.content, i);
  }
  s.whole_pages = s.stored / page_size_;
}

std::int64_t FakePages::free_pages() const {
  return static_cast<std::int64_t>(free_.size()) + idle_count_;
}

StepCost FakePages::next_step(RequestId id, std::int64_t wanted) const {
  const Sequence& s = sequences_.at(id);
  const CachePolicy& policy = s.content.policy;
  std::int64_t tokens = std::min(wanted, max_step_);
  if (policy.kind == CachePolicy::Kind::sinks) {  // no step goes over the edge
    const std::int64_t edge = policy.n_sink + policy.window;
    if (s.stored < edge) tokens = std::min(tokens, edge - s.stored);
  }
  const std::int64_t held = static_cast<std::int64_t>(s.table.size());
  std::int64_t pages = pages_of(s.stored + tokens) - held + (copies_on_write(s) ? 1 : 0);
  const auto [first, last] = leaving(s);
  for (std::int64_t i = first; i < last; ++i) {
    if (pages_[static_cast<std::size_t>(s.table[static_cast<std::size_t>(i)])].holders == 1)
      --pages;
  }
  return {tokens, pages};
}

std::int64_t FakePages::to_store(RequestId id, std::int64_t tokens) const {
  const auto found = sequences_.find(id);
  std::int64_t held = 0;
  if (found == sequences_.end()) {
    const FakeContent& content = waiting_.at(id);
    for (std::int64_t i = hits(id, content, tokens); i-- > 0;) {
      if (pages_[static_cast<std::size_t>(cached_.at(key(id, content, i)))].holders > 0) ++held;
    }
    return max_pages(content.policy, tokens) - held;
  }
  const Sequence& s = found->second;
  for (const std::int32_t page : s.table) held += page >= 0 ? 1 : 0;
  if (copies_on_write(s)) --held;
  return std::max<std::int64_t>(max_pages(s.content.policy, s.stored + tokens) - held, 0);
}

std::uint64_t FakePages::key(RequestId id, const FakeContent& content, std::int64_t page) const {
  const bool shared = (page + 1) * page_size_ <= content.shared_tokens;
  const std::uint64_t owner = shared ? content.family : id + (std::uint64_t{1} << 32);
  return owner << 20 | static_cast<std::uint64_t>(page);
}

// How many pages of its first `known` tokens the pool has. The last token is never taken from them.
std::int64_t FakePages::hits(RequestId id, const FakeContent& content, std::int64_t known) const {
  if (content.policy.kind != CachePolicy::Kind::full) return 0;
  std::int64_t count = 0;
  while ((count + 1) * page_size_ < known && cached_.contains(key(id, content, count))) ++count;
  return count;
}

bool FakePages::copies_on_write(const Sequence& s) const {
  return s.stored % page_size_ != 0 && pages_[static_cast<std::size_t>(s.table.back())].holders > 1;
}

std::int32_t FakePages::take() {
  std::int32_t page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  }
  while (page < 0 && !idle_.empty()) {
    const auto [oldest, since] = idle_.front();
    idle_.pop_front();
    Page& p = pages_[static_cast<std::size_t>(oldest)];
    if (p.idle_since != since) continue;
    cached_.erase(p.key);
    p = {};
    --idle_count_;
    page = oldest;
  }
  if (page < 0) {  // a page that nobody counts, so that the test goes on to report it
    dry_ = true;
    page = static_cast<std::int32_t>(pages_.size());
    pages_.emplace_back();
  }
  pages_[static_cast<std::size_t>(page)].holders = 1;
  return page;
}

void FakePages::drop(std::int32_t& page) {
  if (page < 0) return;
  Page& p = pages_[static_cast<std::size_t>(page)];
  if (--p.holders == 0 && p.cached) {
    p.idle_since = clock_++;
    idle_.emplace_back(page, p.idle_since);
    ++idle_count_;
  } else if (p.holders == 0) {
    free_.push_back(page);
  }
  page = -1;
}

std::string FakePages::problem() const {
  if (dry_) return "more pages were taken than the pool has";
  std::vector<std::int32_t> holders(pages_.size());
  for (const auto& [id, s] : sequences_) {
    for (const std::int32_t page : s.table) {
      if (page >= 0) ++holders[static_cast<std::size_t>(page)];
    }
  }
  std::int64_t held = 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (holders[i] != pages_[i].holders) {
      return fmt::format("page {} has {} holders and counts {}", i, holders[i], pages_[i].holders);
    }
    held += holders[i] > 0 ? 1 : 0;
  }
  if (held + free_pages() == static_cast<std::int64_t>(pages_.size())) return "";
  return fmt::format("{} pages are held and {} free, of {}", held, free_pages(), pages_.size());
}

}  // namespace tessera::test
