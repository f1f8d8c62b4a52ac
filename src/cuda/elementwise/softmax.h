// Softmax over the last dimension on a GPU. src/ops/softmax.cc has checked the arguments.
#pragma once

#include "tessera/softmax.h"

namespace tessera::cuda {

void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera::cuda
