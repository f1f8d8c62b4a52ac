// Which kernel runs an attention call.
#pragma once

#include <vector>

#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// attention.cu: any call.
inline constexpr const char* kPlainAttention = "cuda.plain";
// attention/hopper.cuh: dense f16 and bf16 by what tensor cores and copy engine of compute
// capability 9.0 have.
inline constexpr const char* kHopperAttention = "cuda.hopper";

// The kernels that can run this call on the Context's GPU, the one that is chosen first.
std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args);

// The one that runs it: the first, unless the Context is to use another. Throws where that cannot
// run it.
const char* choose(Context& ctx, const AttentionArgs& args);
// For tests: the kernel that a Context uses from here on; "": its own choice again.
void force_attention_kernel(Context& ctx, const char* kernel);

}  // namespace tessera::cuda
