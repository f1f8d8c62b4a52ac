// Keys and values into the pages of a cache, on the CPU. Arguments have been checked by
// src/ops/kv_append.cc.
#pragma once

#include "tessera/kv_append.h"

namespace tessera::cpu {

void kv_append(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera::cpu
