// LayerNorm and RMSNorm on a GPU. src/ops/norm.cc has checked the arguments. Both return the name
// of the kernel that ran: cuda.registers or cuda.plain.
#pragma once

#include "tessera/norm.h"

namespace tessera::cuda {

const char* layer_norm(Context& ctx, const NormArgs& args);
const char* rms_norm(Context& ctx, const NormArgs& args);

}  // namespace tessera::cuda
