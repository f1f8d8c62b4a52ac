// How many processors this process may use, and the size of their caches.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

// How many processors it may run on at once, at least 1: those of its set (sched_setaffinity,
// taskset), but no more than the quota of its container grants, rounded up.
int usable_processors();
// The same from numbers: the size of the set, and the quota, if there is one.
int processors_within(int set, std::optional<double> quota);

// Bytes of a processor's first-level data cache; 0 if the system does not report it.
std::int64_t l1_cache_bytes();

}  // namespace tessera
