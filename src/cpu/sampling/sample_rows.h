// sample_rows() on the CPU. src/ops/sample_rows.cc has checked the arguments.
#pragma once

#include "tessera/sample_rows.h"

namespace tessera::cpu {

void sample_rows(Context& ctx, const SampleRowsArgs& args);

}  // namespace tessera::cpu
