// Keys and values into the pages of a cache, on a GPU. Arguments have been checked by
// src/ops/kv_append.cc.
#pragma once

#include "tessera/kv_append.h"

namespace tessera::cuda {

void kv_append(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera::cuda
