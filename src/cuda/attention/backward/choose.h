// Kernels of attention_backward() by name, for tests and benchmarks.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// attention_backward() by the kernel of this name. Throws if there is none, or if it cannot run the
// call. The arguments have been checked.
void attention_backward_by(Context& ctx, std::string_view name, const AttentionBackwardArgs& args);

// The kernels that can run this call on the Context's GPU, the chosen one first.
std::vector<const char*> backward_kernels(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace tessera::cuda
