// append_attention() on a GPU: one kernel where a sequence has few query rows, as in decoding; else
// rotary_append() and attention(). src/ops/append_attention.cc has checked the arguments.
#pragma once

#include "tessera/append_attention.h"

namespace tessera::cuda {

// Returns the kernel's name: cuda.append+split if one kernel does both, else attention's kernel.
const char* append_attention(Context& ctx, const AppendAttentionArgs& args);

}  // namespace tessera::cuda
