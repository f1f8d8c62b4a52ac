// How many processors this process may use.
#pragma once

#include <optional>

namespace tessera {

// The processors it may run on at once, at least 1: those of its set (sched_setaffinity, taskset),
// and no more than the quota of its container grants, rounded up.
int usable_processors();
// The same from numbers: the size of the set, and the quota, if there is one.
int processors_within(int set, std::optional<double> quota);

}  // namespace tessera
