// sample() on the CPU. src/ops/sample.cc has checked the arguments.
#pragma once

#include "tessera/sample.h"

namespace tessera::cpu {

void sample(Context& ctx, const SampleArgs& args);

}  // namespace tessera::cpu
