// Finds pages by what is in them. What a whole page of keys and values holds follows from its
// tokens, from all tokens before it, and from the policy. So an entry is a page's tokens and the
// entry of the page before it: a trie, in which the children of an entry are found by a hash.
//
//   entry 1 [the cat sat]  <- entry 2 [on the mat]
//                          <- entry 5 [on the bed]  <- entry 6 [and slept]
//
// Entries are compared in full, so that equal hashes never give a wrong page. Numbers of entries
// are never used again: an entry whose parent has gone cannot be reached, and is given up in its
// turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/page_pool.h"

namespace tessera {

class PrefixIndex {
 public:
  static constexpr std::uint64_t kRoot = 0;  // the parent of a stream's first page

  // For pages 0 .. pages - 1 of up to page_size tokens. All memory is taken here.
  PrefixIndex(std::int64_t pages, std::int64_t page_size);

  struct Key {
    CachePolicy policy;
    std::uint64_t parent;
    std::span<const std::int32_t> tokens;
  };
  // The page with these tokens, or -1.
  std::int32_t find(const Key& key) const;
  // Makes the page findable, unless another with the same tokens is. Returns the entry's number.
  std::uint64_t add(const Key& key, std::int32_t page);
  // The page is about to hold something else.
  void forget(std::int32_t page);

  bool has(std::int32_t page) const { return entries_[index(page)].number != kRoot; }
  std::uint64_t number(std::int32_t page) const { return entries_[index(page)].number; }
  std::int64_t size() const { return size_; }

 private:
  struct Entry {
    std::uint64_t number = kRoot;  // kRoot: no entry
    std::uint64_t parent = kRoot;
    CachePolicy policy{};
    std::int32_t tokens = 0;
    std::int32_t next = -1;  // page of the next entry in the bucket
  };

  static std::size_t index(std::int32_t page) { return static_cast<std::size_t>(page); }
  std::size_t bucket(const Key& key) const;
  bool matches(std::int32_t page, const Key& key) const;
  std::span<const std::int32_t> tokens_of(std::int32_t page) const;

  std::int64_t page_size_;
  std::uint64_t seed_;  // so that nobody can prepare tokens that share a bucket
  std::uint64_t last_number_ = kRoot;
  std::int64_t size_ = 0;
  std::vector<Entry> entries_;              // of each page
  std::vector<std::int32_t> buckets_;       // the first page of each
  std::unique_ptr<std::int32_t[]> tokens_;  // [pages, page_size]
};

}  // namespace tessera
