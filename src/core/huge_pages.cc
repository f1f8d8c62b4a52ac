#include "core/huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdlib>
#include <new>

#include "core/checked.h"

namespace tessera {
namespace {

constexpr std::int64_t kUnit = 64;  // the alignment of blocks, with room for a FreeBlock

char* end_of(void* data, std::int64_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace

// At the start of a block that is free. The list is in the order of addresses.
struct HugePages::FreeBlock {
  FreeBlock* next;
  std::int64_t bytes;
};

// At the start of a slab.
struct HugePages::Slab {
  Slab* next;
  FreeBlock* free;
  std::int64_t used;  // bytes of blocks

  char* begin() { return end_of(this, kUnit); }
  char* end() { return end_of(this, kSlabBytes); }
  bool has(const void* data) { return data >= begin() && data < end(); }

  static Slab* make(Slab* next);
  void* take(std::int64_t bytes);
  void give_back(void* data, std::int64_t bytes);
};

void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) {
#if defined(__linux__)
  madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a hint: it may be ignored
#endif
}

// ---- a slab ------------------------------------------------------------------------------------

HugePages::Slab* HugePages::Slab::make(Slab* next) {
  void* memory = std::aligned_alloc(kHugePage, kSlabBytes);
  if (!memory) return nullptr;
  ask_for_huge_pages(memory, kSlabBytes);
  Slab* slab = new (memory) Slab{next, nullptr, 0};
  slab->free = new (slab->begin()) FreeBlock{nullptr, kSlabBytes - kUnit};
  return slab;
}

// The front of the first free block that is large enough.
void* HugePages::Slab::take(std::int64_t bytes) {
  for (FreeBlock** link = &free; *link; link = &(*link)->next) {
    FreeBlock* block = *link;
    if (block->bytes < bytes) continue;
    const FreeBlock rest{block->next, block->bytes - bytes};
    *link = rest.bytes == 0 ? rest.next : new (end_of(block, bytes)) FreeBlock(rest);
    used += bytes;
    return block;
  }
  return nullptr;
}

void HugePages::Slab::give_back(void* data, std::int64_t bytes) {
  used -= bytes;
  FreeBlock *before = nullptr, *after = free;
  while (after && static_cast<void*>(after) < data) before = after, after = after->next;
  FreeBlock* block = new (data) FreeBlock{after, bytes};
  (before ? before->next : free) = block;
  if (after && end_of(block, block->bytes) == static_cast<void*>(after)) {
    block->bytes += after->bytes;
    block->next = after->next;
  }
  if (before && end_of(before, before->bytes) == static_cast<void*>(block)) {
    before->bytes += block->bytes;
    before->next = block->next;
  }
}

// ---- all of them -------------------------------------------------------------------------------

HugePages::~HugePages() {
  while (Slab* slab = first_) {
    first_ = slab->next;
    std::free(slab);
  }
}

void* HugePages::take(std::int64_t bytes) {
  static_assert(sizeof(Slab) <= kUnit && sizeof(FreeBlock) <= kUnit);
  const std::int64_t size = checked_align(bytes, kUnit);
  const std::lock_guard lock(mutex_);
  Slab** last = &first_;  // older slabs come first, so that new ones become empty
  for (; *last; last = &(*last)->next) {
    if (void* block = (*last)->take(size)) return block;
  }
  *last = Slab::make(nullptr);
  return *last ? (*last)->take(size) : nullptr;
}

bool HugePages::give_back(void* data, std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Slab** link = &first_;
  while (*link && !(*link)->has(data)) link = &(*link)->next;
  Slab* slab = *link;
  if (!slab) return false;
  slab->give_back(data, (bytes + kUnit - 1) / kUnit * kUnit);
  const bool is_only = slab == first_ && !slab->next;
  if (slab->used == 0 && !is_only) {
    *link = slab->next;
    std::free(slab);
  }
  return true;
}

int HugePages::slabs() const {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (const Slab* slab = first_; slab; slab = slab->next) ++count;
  return count;
}

}  // namespace tessera
