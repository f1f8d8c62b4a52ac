// LayerNorm and RMSNorm on a GPU. Arguments have been checked by src/ops/norm.cc.
#pragma once

#include "tessera/norm.h"

namespace tessera::cuda {

void layer_norm(Context& ctx, const NormArgs& args);
void rms_norm(Context& ctx, const NormArgs& args);

}  // namespace tessera::cuda
