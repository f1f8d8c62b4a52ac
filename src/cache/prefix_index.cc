#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>
#include <random>

#include "core/checked.h"

namespace tessera {
namespace {

// The mixing step of SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

PrefixIndex::PrefixIndex(std::int64_t pages, std::int64_t page_size)
    : page_size_(page_size),
      seed_(random_seed()),
      entries_(static_cast<std::size_t>(pages)),
      buckets_(std::bit_ceil(static_cast<std::size_t>(pages)), -1),
      tokens_(std::make_unique_for_overwrite<std::int32_t[]>(
          static_cast<std::size_t>(checked_mul(pages, page_size)))) {}

std::size_t PrefixIndex::bucket(const Key& key) const {
  std::uint64_t hash = mixed(seed_ ^ key.parent);
  hash = mixed(hash + static_cast<std::uint64_t>(key.policy.kind));
  hash = mixed(hash + static_cast<std::uint64_t>(key.policy.n_sink));
  hash = mixed(hash + static_cast<std::uint64_t>(key.policy.window));
  for (const std::int32_t token : key.tokens) {
    hash = mixed(hash + static_cast<std::uint32_t>(token) + 0x9e3779b97f4a7c15u);
  }
  return hash & (buckets_.size() - 1);
}

std::span<const std::int32_t> PrefixIndex::tokens_of(std::int32_t page) const {
  return {tokens_.get() + page * page_size_,
          static_cast<std::size_t>(entries_[index(page)].tokens)};
}

bool PrefixIndex::matches(std::int32_t page, const Key& key) const {
  const Entry& entry = entries_[index(page)];
  return entry.parent == key.parent && entry.policy == key.policy &&
         std::ranges::equal(tokens_of(page), key.tokens);
}

std::int32_t PrefixIndex::find(const Key& key) const {
  std::int32_t page = buckets_[bucket(key)];
  while (page >= 0 && !matches(page, key)) page = entries_[index(page)].next;
  return page;
}

std::uint64_t PrefixIndex::add(const Key& key, std::int32_t page) {
  const std::int32_t found = find(key);
  if (found >= 0) return number(found);
  forget(page);
  std::int32_t& first = buckets_[bucket(key)];
  entries_[index(page)] = {.number = ++last_number_,
                           .parent = key.parent,
                           .policy = key.policy,
                           .tokens = static_cast<std::int32_t>(key.tokens.size()),
                           .next = first};
  first = page;
  std::ranges::copy(key.tokens, tokens_.get() + page * page_size_);
  ++size_;
  return last_number_;
}

void PrefixIndex::forget(std::int32_t page) {
  Entry& entry = entries_[index(page)];
  if (entry.number == kRoot) return;
  std::int32_t* link = &buckets_[bucket(
      {.policy = entry.policy, .parent = entry.parent, .tokens = tokens_of(page)})];
  while (*link != page) link = &entries_[index(*link)].next;
  *link = entry.next;
  entry = {};
  --size_;
}

}  // namespace tessera
