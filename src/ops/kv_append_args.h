// The checks of the ops that write keys and values into pages.
#pragma once

#include <cstdint>

#include "ops/op_scope.h"
#include "tessera/kv_append.h"

namespace tessera {

// Shapes, dtypes and overlaps.
void check_kv_append(const OpScope& op, const KvAppendArgs& args);
// What the slots say, on the CPU: all within the pool, none twice.
void check_kv_slots(const OpScope& op, Context& ctx, const KvAppendArgs& args);
std::int64_t kv_slots_scratch_bytes(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera
