// Asking for weights before they are needed, by kernels that stream them in groups of rows: a group
// of short rows ends before the memory's prefetchers have found its streams, so the group after it
// is asked for meanwhile. (768 x 768 in f16, one row: from 11 to 22 GB/s with one thread.)
#pragma once

#include <hwy/base.h>

#include <cstdint>

namespace tessera::cpu {

// As far ahead as the L2 cache has room for.
inline constexpr std::int64_t kPrefetchRoom = 128 << 10;

// The cache line `ahead` bytes after `from`. It may lie past the end: such a request does nothing.
// (Always inline: to g++ 12 a call of this has no effect, and goes.)
template <typename T>
HWY_INLINE void prefetch_to_l2(const T* from, std::int64_t ahead) {
  constexpr int kRead = 0, kToL2 = 2;
  const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
  __builtin_prefetch(reinterpret_cast<const void*>(address), kRead, kToL2);
}

}  // namespace tessera::cpu
