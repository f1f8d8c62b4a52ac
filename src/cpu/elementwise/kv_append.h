// Writes keys and values into the pages of a cache, on the CPU. src/ops/kv_append.cc has checked
// the arguments.
#pragma once

#include "tessera/kv_append.h"

namespace tessera::cpu {

void kv_append(Context& ctx, const KvAppendArgs& args);

// The same for one token, in the calling thread.
void append_token(const KvAppendArgs& args, std::int64_t token);

}  // namespace tessera::cpu
