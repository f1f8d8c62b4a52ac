// Rotary position embedding and the write to a cache's pages in one kernel. Arguments have been
// checked by src/ops/rotary_append.cc.
#pragma once

#include "tessera/rotary_append.h"

namespace tessera::cuda {

void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera::cuda
