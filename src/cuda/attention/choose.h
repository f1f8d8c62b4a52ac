// Attention kernels by name, for tests and benchmarks: which ones can run a call, and which one a
// Context must use.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// From here on the Context uses the kernel of this name; "": its own choice again. Throws if there
// is no such kernel. Calls that the kernel cannot run are refused.
void force_attention_kernel(Context& ctx, std::string_view name);
bool is_attention_kernel_forced(Context& ctx);

// The kernels that can run this call on the Context's GPU, the chosen one first.
std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args);
// The same for the kernels that run on every GPU.
std::vector<const char*> portable_attention_kernels(const AttentionArgs& args);

}  // namespace tessera::cuda
