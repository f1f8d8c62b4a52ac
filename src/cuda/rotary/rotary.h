// Rotary position embedding on a GPU. Arguments have been checked by src/ops/rotary.cc.
#pragma once

#include "tessera/rotary.h"

namespace tessera::cuda {

void rotary(Context& ctx, const RotaryArgs& args);

}  // namespace tessera::cuda
