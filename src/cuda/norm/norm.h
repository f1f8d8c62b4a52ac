// LayerNorm and RMSNorm on a GPU. Arguments have been checked by src/ops/norm.cc. They say which
// kernel ran: cuda.registers or cuda.plain.
#pragma once

#include "tessera/norm.h"

namespace tessera::cuda {

const char* layer_norm(Context& ctx, const NormArgs& args);
const char* rms_norm(Context& ctx, const NormArgs& args);

}  // namespace tessera::cuda
