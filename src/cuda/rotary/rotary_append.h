// Rotary position embedding and the write to a cache's pages in one kernel.
// src/ops/rotary_append.cc has checked the arguments.
#pragma once

#include "tessera/rotary_append.h"

namespace tessera::cuda {

void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera::cuda
