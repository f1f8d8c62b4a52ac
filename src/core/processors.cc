#include "core/processors.h"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/container_limits.h"

namespace tessera {
namespace {

int processors_of_the_set() {
#if defined(__linux__)
  // Sized for more processors than any machine has: the call fails if the set is too small.
  constexpr int kMost = 1 << 14;
  cpu_set_t* const set = CPU_ALLOC(kMost);
  const std::size_t bytes = CPU_ALLOC_SIZE(kMost);
  const bool known = set != nullptr && sched_getaffinity(0, bytes, set) == 0;
  const int count = known ? CPU_COUNT_S(bytes, set) : 0;
  if (set != nullptr) CPU_FREE(set);
  if (count > 0) return count;
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int processors_within(int set, std::optional<double> quota) {
  const int granted = quota && *quota < set ? static_cast<int>(std::ceil(*quota)) : set;
  return std::max(1, granted);
}

int usable_processors() {
  return processors_within(processors_of_the_set(), container_limits().processors);
}

std::int64_t l1_cache_bytes() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  return std::max<std::int64_t>(0, sysconf(_SC_LEVEL1_DCACHE_SIZE));
#else
  return 0;
#endif
}

}  // namespace tessera
