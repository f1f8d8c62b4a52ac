// Draws from whole rows on Hopper, in one kernel (draw_whole.cu).
#pragma once

#include <cstdint>

#include "cuda/sampling/sample_kernels.h"

namespace tessera::cuda {

// Whether the kernel takes this number of draws. None may have top-k or top-p.
bool takes_whole_draws(Context& ctx, std::int64_t draws);

void launch_whole_draws(Context& ctx, const SampleArgs& args);
void launch_whole_draws(Context& ctx, const SampleRowsArgs& args);

}  // namespace tessera::cuda
