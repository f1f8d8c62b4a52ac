// A draw from a whole row on Hopper, in one kernel (draw_whole.cu).
#pragma once

#include <cstdint>

#include "cuda/sampling/sample_kernels.h"

namespace tessera::cuda {

// Whether the kernel takes this number of draws from rows of this length. None may have top-k or
// top-p.
bool takes_whole_draw(Context& ctx, std::int64_t draws, std::int64_t logits);

void launch_whole_draw(Context& ctx, const SampleArgs& args);
void launch_whole_draw(Context& ctx, const SampleRowsArgs& args);

}  // namespace tessera::cuda
