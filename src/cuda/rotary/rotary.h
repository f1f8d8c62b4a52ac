// Rotary position embedding on a GPU. src/ops/rotary.cc has checked the arguments.
#pragma once

#include "tessera/rotary.h"

namespace tessera::cuda {

void rotary(Context& ctx, const RotaryArgs& args);

}  // namespace tessera::cuda
