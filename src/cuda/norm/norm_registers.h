// LayerNorm and RMSNorm with the row in registers: for rows of whole 16-byte pieces.
#pragma once

#include "tessera/norm.h"

namespace tessera::cuda {

// Whether the kernel takes these tensors: rows of at most 16384 elements, each aligned to 16 bytes
// and a multiple of 16 bytes long.
bool fits_registers(const NormArgs& args);

// centred: layer_norm; else rms_norm.
void norm_in_registers(Context& ctx, const char* op, const NormArgs& args, bool centred);

}  // namespace tessera::cuda
