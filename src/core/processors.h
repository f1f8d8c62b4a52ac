// How many processors this process may use, and what they have.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

// The processors it may run on at once, at least 1: those of its set (sched_setaffinity, taskset),
// and no more than the quota of its container grants, rounded up.
int usable_processors();
// The same from numbers: the size of the set, and the quota, if there is one.
int processors_within(int set, std::optional<double> quota);

// Bytes of a processor's first cache for data; 0 if the system does not say.
std::int64_t l1_cache_bytes();

}  // namespace tessera
