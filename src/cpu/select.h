// The largest elements of each row on the CPU. Arguments have been checked by src/ops/select.cc.
#pragma once

#include "tessera/select.h"

namespace tessera::cpu {

void argmax(Context& ctx, const ArgmaxArgs& args);
void top_k(Context& ctx, const TopKArgs& args);

}  // namespace tessera::cpu
