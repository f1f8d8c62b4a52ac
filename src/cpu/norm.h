// LayerNorm and RMSNorm on the CPU. Arguments have been checked by src/ops/norm.cc.
#pragma once

#include "tessera/norm.h"

namespace tessera::cpu {

void layer_norm(Context& ctx, const NormArgs& args);
void rms_norm(Context& ctx, const NormArgs& args);

}  // namespace tessera::cpu
