// linear() and gated_linear() on a GPU. The arguments have been checked.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera::cuda {

// Each returns the name of the kernel that ran.
const char* linear(Context& ctx, const LinearArgs& args);
const char* gated_linear(Context& ctx, const GatedLinearArgs& args);

}  // namespace tessera::cuda
