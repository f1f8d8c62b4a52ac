// How fast this device's memory is read: the floor under everything that reads its weights once.
#pragma once

#include "tessera/context.h"

namespace tessera::bench {

// Bytes per second, the median of some rounds over far more memory than any cache holds. On the CPU
// all threads add up 8-byte words. A GPU copies a block to another, the fastest thing it has that
// needs no kernel of ours, and both what is read and what is written counts.
double read_bandwidth(Context& ctx);

}  // namespace tessera::bench
