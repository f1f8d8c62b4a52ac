// Checks shared by the ops that write keys and values into pages.
#pragma once

#include <cstdint>

#include "ops/op_scope.h"
#include "tessera/kv_append.h"

namespace tessera {

// Checks shapes, dtypes and overlaps.
void check_kv_append(const OpScope& op, const KvAppendArgs& args);
// Checks the values of the slots, on the CPU: all are within the pool, and none appears twice.
void check_kv_slots(const OpScope& op, Context& ctx, const KvAppendArgs& args);
// Bytes of keys and values that are read and written.
std::int64_t kv_append_bytes(const KvAppendArgs& args);
std::int64_t kv_slots_scratch_bytes(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera
