// The portable kernel for the gradients of attention (portable.cuh) as the host sees it.
#pragma once

#include "cuda/attention/backward/kernel.h"

namespace tessera::cuda::backward {

bool portable_takes(const BackwardRequest& request);
void run_portable(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame);

}  // namespace tessera::cuda::backward
