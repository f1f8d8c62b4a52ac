// Rotary position embedding and the write to a cache's pages. Arguments have been checked by
// src/ops/rotary_append.cc.
#pragma once

#include "tessera/rotary_append.h"

namespace tessera::cpu {

std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args);
void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera::cpu
