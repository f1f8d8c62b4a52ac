// Attention on a GPU. src/ops/attention.cc has checked the arguments as far as the host can see
// them. Offsets, lengths and page numbers are in device memory: kernels only clamp them, so that
// they do no harm.
//
//   attention.cc   plans a call, takes its scratch and runs it
//   append.cc      the same with the tokens of a step that are not in the cache yet
//   kernel.h       one kernel of the table, and the plan of a call
//   choose.cc      the table, and which kernel runs a call
//   call.h         the call as kernels see it: layouts, sequences, and the work in tiles
//   plain/         one kernel for every call, and one for every call's gradients
//   portable/      tensor cores of every GPU from sm_80 on
//   hopper/        what only compute capability 9.0 has
//   backward/      gradients: the table of kernels, and those for tensor cores
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera::cuda {

// Returns the kernel's name.
const char* attention(Context& ctx, const AttentionArgs& args);
// The most workspace that this call, or one with fewer queries or keys, takes.
std::int64_t attention_scratch_bytes(Context& ctx, const AttentionArgs& args);
// Returns the kernel's name.
const char* attention_backward(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace tessera::cuda
