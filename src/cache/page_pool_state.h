// The pages of a pool: their memory, who holds how many, and which can be taken next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/cache_memory.h"
#include "cache/prefix_index.h"
#include "tessera/page_pool.h"

namespace tessera {

struct PagePool::State {
  State(Context& ctx, const PagePoolOptions& given);

  // Pages nobody holds, in the order in which they were released.
  struct List {
    std::int32_t first = -1, last = -1;
    std::int64_t size = 0;
  };
  struct Page {
    std::int32_t holders = 0;
    std::int32_t before = -1, after = -1;  // in a list
  };

  // Of layer i / 2: keys for an even i, values for an odd one.
  char* pages_at(std::int64_t i) const { return memory.data() + i * stride; }
  char* scales_at(std::int64_t i) const {
    return memory.data() + 2 * options.layers * stride + i * scale_stride;
  }
  Page& page(std::int32_t number) { return pages[static_cast<std::size_t>(number)]; }
  bool is_found(std::int32_t number) const { return index != nullptr && index->has(number); }
  List& list_of(std::int32_t number) { return is_found(number) ? kept : free; }
  void check_page(std::int32_t number) const;
  void append(std::int32_t number);
  void unlink(std::int32_t number);
  void drop(std::int32_t number);  // one holder less, of a page that has some
  // The page may be written to by its only holder; it can no longer be found.
  void forget(std::int32_t number);

  PagePoolOptions options;
  Device device;
  // Bytes from one layer's keys to its values, and to the next layer's keys: of pages and, behind
  // all of them, of their scales.
  std::int64_t stride, scale_stride;
  CacheMemory memory;
  std::vector<Page> pages;  // those that were used before
  List free, kept;          // kept: they can be found
  std::int64_t used = 0;
  std::unique_ptr<PrefixIndex> index;  // null: pages cannot be found again
  PrefixStats stats;
};

}  // namespace tessera
