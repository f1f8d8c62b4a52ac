// sample() on a GPU. src/ops/sample.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/sample.h"

namespace tessera::cuda {

void sample(Context& ctx, const SampleArgs& args);

// What it takes of the workspace, for these rows and for fewer.
std::int64_t sample_scratch_bytes(const SampleArgs& args);

}  // namespace tessera::cuda
