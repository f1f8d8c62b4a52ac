// sample() on the CPU. Arguments have been checked by src/ops/sample.cc.
#pragma once

#include "tessera/sample.h"

namespace tessera::cpu {

void sample(Context& ctx, const SampleArgs& args);

}  // namespace tessera::cpu
