// The read bandwidth of a device's memory: the floor for everything that reads its weights once.
#pragma once

#include "tessera/context.h"

namespace tessera::bench {

// Bytes per second: the median of several rounds over far more memory than any cache holds. On the
// CPU, all threads add up 8-byte words. A GPU copies one block to another, the fastest thing that
// needs no kernel of ours; bytes read and bytes written both count.
double read_bandwidth(Context& ctx);

}  // namespace tessera::bench
