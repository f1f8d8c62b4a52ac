// Rotary position embedding, followed by the write to a cache's pages. src/ops/rotary_append.cc has
// checked the arguments.
#pragma once

#include "tessera/rotary_append.h"

namespace tessera::cpu {

std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args);
void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera::cpu
