// Softmax over the last dimension on the CPU. Arguments have been checked by src/ops/softmax.cc.
#pragma once

#include "tessera/softmax.h"

namespace tessera::cpu {

void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera::cpu
