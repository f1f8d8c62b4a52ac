// Host memory for blocks that are smaller than a huge page, cut from slabs of huge pages.
//
// A huge page of 2 MB needs one entry of the processor's address tables, which a weight of 1 MB on
// pages of 4 KB needs 256 times. The tables have about 3000 entries, so a model of 50 MB misses one
// for nearly every page, and a virtual machine pays for each miss twice. (Pythia-160M in int4, 8
// streams, two cores of Zen 4: 7.3 to 6.7 ms a step.)
//
//   slab  | header | block | free    | block | free       |     8 MB, on a boundary of 2 MB
//                             |                 ^
//                             +-- next ---------+          the list lies in the free memory
//
// Blocks are allocated by first fit, and free neighbours are merged. So a weight takes the place of
// the temporaries of the weight before it. All empty slabs but one go back to the system: a program
// that makes and destroys one tensor again and again does not map memory each time.
//
// Threads: any number at the same time.
#pragma once

#include <cstdint>
#include <mutex>

namespace tessera {

class HugePages {
 public:
  static constexpr std::int64_t kHugePage = 2 << 20;
  static constexpr std::int64_t kSlabBytes = 4 * kHugePage;

  HugePages() = default;
  ~HugePages();
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // Uninitialised memory on a boundary of 64 bytes, for 1 to kHugePage bytes. Null if the system
  // refuses.
  void* take(std::int64_t bytes);
  // `bytes` is what take() was called with. False if the memory is not from here.
  bool give_back(void* data, std::int64_t bytes) noexcept;

  // Slabs that are mapped.
  int slabs() const;

 private:
  struct Slab;
  struct FreeBlock;

  mutable std::mutex mutex_;
  Slab* first_ = nullptr;
};

// Makes the memory huge pages as it is touched, if the system has them.
void ask_for_huge_pages(void* data, std::int64_t bytes);

}  // namespace tessera
