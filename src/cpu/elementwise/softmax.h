// Softmax over the last dimension on the CPU. src/ops/softmax.cc has checked the arguments.
#pragma once

#include "tessera/softmax.h"

namespace tessera::cpu {

void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera::cpu
