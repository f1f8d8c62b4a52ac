// Keys and values into the pages of a cache, on a GPU. src/ops/kv_append.cc has checked
// the arguments.
#pragma once

#include "tessera/kv_append.h"

namespace tessera::cuda {

void kv_append(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera::cuda
