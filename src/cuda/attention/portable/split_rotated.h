// cuda.split.rotated (split_rotated.cuh) as the host sees it.
#pragma once

#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::split {

// The widest heads whose keys are rotated in registers.
inline constexpr int kMostRotated = 128;

// Whether keys are rotated as they are read, and can be rotated in registers. Pairs of halves of a
// head are read two at a time, so their number must be even.
inline bool suits_rotating(const AttentionCall& call, const KeyUnits& units) {
  return call.inv_freq != nullptr && call.pairs > 0 && !call.has_codes() && !call.capped &&
         !call.dropping && call.q_factor > 0.f && !is_pattern(call) && units.vectors &&
         call.dim <= kMostRotated && (!call.half_split || call.pairs % 2 == 0);
}

// Runs a call for which suits_rotating() is true.
template <typename T, int dim>
void launch_rotated(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
                    const Partials& partials);

}  // namespace tessera::cuda::split
