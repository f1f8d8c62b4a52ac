// logprobs() on the CPU. src/ops/logprobs.cc has checked the arguments.
#pragma once

#include "tessera/logprobs.h"

namespace tessera::cpu {

void logprobs(Context& ctx, const LogprobsArgs& args);

}  // namespace tessera::cpu
