// Attention on a GPU. Arguments have been checked by src/ops/attention.cc, as far as the host can
// see them: what lies in device memory (offsets, lengths, page numbers) is only kept from doing
// harm.
//
//   attention_call.cc       from the arguments to the call as kernels see it
//   attention_call.h        the call: layouts, sequences, and how the work is cut into tiles
//   attention_tile.cuh      rows in shared memory, and products with them
//   attention_choose.cc     which kernel runs it
//   attention/              the forward pass by tensor cores
//   attention.cu            the forward pass, plain
//   attention_backward.cu   gradients
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera::cuda {

// Gives the kernel's name.
const char* attention(Context& ctx, const AttentionArgs& args);
// What it takes of the workspace.
std::int64_t attention_scratch_bytes(const AttentionArgs& args);
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace tessera::cuda
