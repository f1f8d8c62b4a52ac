// Checks and counts shared by rotary_append() and append_attention().
#pragma once

#include <cstdint>

#include "ops/op_scope.h"
#include "tessera/rotary_append.h"

namespace tessera {

// Checks shapes, dtypes and overlaps.
void check_rotary_append(const OpScope& op, const RotaryAppendArgs& args);
// Checks the values of positions and slots, on the CPU.
void check_rotary_append_values(const OpScope& op, Context& ctx, const RotaryAppendArgs& args);
std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args);
OpCost rotary_append_cost(const RotaryAppendArgs& args);

}  // namespace tessera
