// Softmax over the last dimension on a GPU. Arguments have been checked by src/ops/softmax.cc.
#pragma once

#include "tessera/softmax.h"

namespace tessera::cuda {

void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera::cuda
