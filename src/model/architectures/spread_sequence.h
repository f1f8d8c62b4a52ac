// A sequence whose pages are spread over processes: which of its keys a process keeps, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "core/checked.h"
#include "core/fail.h"
#include "tessera/cache_batch.h"
#include "tessera/page_pool.h"

namespace tessera {

// One sequence of a group: its page table as numbers, and where a process keeps its keys.
class SpreadSequence {
 public:
  SpreadSequence(const AttentionGroup& group, std::int64_t index, std::int64_t page_size,
                 const PageShare& share)
      : page_size_(page_size), share_(share) {
    const Tensor& table = group.pages.table;
    pages_ = table.ptr<const std::int32_t>() + index * table.stride(0);
    keys_ = group.pages.lengths.ptr<const std::int32_t>()[index * group.pages.lengths.stride(0)];
    if (group.pages.holes.defined()) {
      const Tensor& holes = group.pages.holes;
      const auto* hole = holes.ptr<const std::int32_t>() + index * holes.stride(0);
      // Without sinks, the hole covers the tokens that have left the first page.
      if (hole[1] > 0 && hole[0] > 0) {
        fail(ErrorCode::unsupported, "a spread cache holds one run of tokens, without sinks");
      }
      hole_ = hole[1];
    }
  }

  std::int64_t keys() const { return keys_; }
  std::int64_t pages() const { return ceil_div(hole_ + keys_, page_size_); }
  std::int32_t page(std::int64_t index) const { return pages_[index]; }
  // Key j of the sequence lies in this slot of its pages.
  std::int64_t slot(std::int64_t key) const { return key + hole_; }
  // How many slots before `slot` are those of a rank: where the slot is among its own.
  std::int64_t slots_before(std::int64_t slot, int rank) const {
    const std::int64_t whole = slot / page_size_, rest = slot % page_size_;
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < whole; ++i) before += share_.owner(pages_[i]) == rank;
    const bool is_own = rest > 0 && share_.owner(pages_[whole]) == rank;
    return before * page_size_ + (is_own ? rest : 0);
  }
  std::vector<std::int32_t> own_pages(int rank) const {
    std::vector<std::int32_t> own;
    for (std::int64_t i = 0; i < pages(); ++i) {
      if (share_.owner(pages_[i]) == rank) {
        own.push_back(static_cast<std::int32_t>(share_.local(pages_[i])));
      }
    }
    return own;
  }

 private:
  const std::int32_t* pages_;
  std::int64_t page_size_, keys_ = 0, hole_ = 0;
  PageShare share_;
};

}  // namespace tessera
