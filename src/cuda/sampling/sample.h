// sample() and sample_rows() on a GPU. src/ops/ has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/sample.h"
#include "tessera/sample_rows.h"

namespace tessera::cuda {

void sample(Context& ctx, const SampleArgs& args);
void sample_rows(Context& ctx, const SampleRowsArgs& args);

// The workspace that they take, for these draws and for fewer.
std::int64_t sample_scratch_bytes(const SampleArgs& args);
std::int64_t sample_scratch_bytes(const SampleRowsArgs& args);

}  // namespace tessera::cuda
