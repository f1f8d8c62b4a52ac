// A pool of pages without keys and values, for tests of the scheduler: counted pages, forks that
// copy on write, pages found again by their contents, windows and sinks that give pages back. Its
// counts are exact, and the test fails if more pages are taken than there are.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "tessera/kv_cache.h"

namespace tessera::test {

// What a sequence stores. The pages of its first shared_tokens are those of its family.
struct FakeContent {
  CachePolicy policy{};
  std::uint64_t family = 0;
  std::int64_t shared_tokens = 0;
};

class FakePages {
 public:
  FakePages(std::int64_t total_pages, std::int64_t page_size, std::int64_t max_step);
  FakePages(const FakePages&) = delete;
  FakePages& operator=(const FakePages&) = delete;

  // The most pages that a sequence of this many stored tokens holds.
  std::int64_t max_pages(const CachePolicy& policy, std::int64_t tokens) const;
  void add(engine::RequestId id, const FakeContent& content);
  void remove(engine::RequestId id);
  // Takes the pages of its prefix that the pool has; returns their tokens, fewer than `known`.
  std::int64_t start(engine::RequestId id, std::int64_t known);
  void fork(engine::RequestId child, engine::RequestId parent);
  // A step: all sequences give back the pages that have left their windows, then each takes those
  // of its next tokens.
  void leave(engine::RequestId id);
  void store(engine::RequestId id, std::int64_t tokens);
  // After a step: drops the last `rejected` tokens again.
  void settle(engine::RequestId id, std::int64_t rejected);

  std::int64_t free_pages() const;
  engine::StepCost next_step(engine::RequestId id, std::int64_t wanted) const;
  std::int64_t to_store(engine::RequestId id, std::int64_t tokens) const;
  void release(engine::RequestId id);
  engine::PoolView view() const { return {free_pages_, next_step_, to_store_, release_}; }
  // Called before a sequence is released.
  std::function<void(engine::RequestId)> on_release;

  // Counts all pages again. Returns an empty string, or what is wrong.
  std::string problem() const;

 private:
  struct Sequence {
    FakeContent content;
    std::int64_t stored = 0;
    std::int64_t whole_pages = 0;     // that can be found again
    std::vector<std::int32_t> table;  // page i holds tokens i * page_size and on; -1: given back
  };
  struct Page {
    std::int32_t holders = 0;
    bool cached = false;
    std::uint64_t key = 0;
    std::int64_t idle_since = -1;
  };

  std::int64_t pages_of(std::int64_t tokens) const {
    return (tokens + page_size_ - 1) / page_size_;
  }
  std::uint64_t key(engine::RequestId id, const FakeContent& content, std::int64_t page) const;
  std::int64_t hits(engine::RequestId id, const FakeContent& content, std::int64_t known) const;
  std::pair<std::int64_t, std::int64_t> leaving(const Sequence& s) const;
  bool copies_on_write(const Sequence& s) const;
  std::int32_t take();
  void drop(std::int32_t& page);

  std::int64_t page_size_, max_step_;
  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;
  std::deque<std::pair<std::int32_t, std::int64_t>>
      idle_;  // page, since when; stale ones are skipped
  std::int64_t idle_count_ = 0;
  std::int64_t clock_ = 0;
  bool dry_ = false;
  std::unordered_map<std::uint64_t, std::int32_t> cached_;
  std::unordered_map<engine::RequestId, FakeContent> waiting_;
  std::unordered_map<engine::RequestId, Sequence> sequences_;
  std::function<std::int64_t()> free_pages_;
  std::function<engine::StepCost(engine::RequestId, std::int64_t)> next_step_;
  std::function<std::int64_t(engine::RequestId, std::int64_t)> to_store_;
  std::function<void(engine::RequestId)> release_;
};

}  // namespace tessera::test
