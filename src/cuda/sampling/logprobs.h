// logprobs() on a GPU. src/ops/logprobs.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/logprobs.h"

namespace tessera::cuda {

void logprobs(Context& ctx, const LogprobsArgs& args);

// The workspace that it takes, for these draws and for fewer.
std::int64_t logprobs_scratch_bytes(Context& ctx, const LogprobsArgs& args);

}  // namespace tessera::cuda
