// The Hopper attention kernels as the host sees them: dense prefill in f16 or bf16, any head dim
// that is a multiple of 8 up to 256, grouped heads, log-sum-exp, every mask. The blocks of a
// pattern must be made of tiles of 128 x 128.
//
//   tiles.h        tile sizes, and the plan of a call
//   call.h         what a kernel is launched with
//   hopper.cc      from an attention call to that; when the kernels can be used
//   hopper.cuh     the kernel, and how its warpgroups work together
//   block.cuh      shared memory and the barriers in it
//   fetch.cuh      one warpgroup fetches
//   compute.cuh    the others compute: the loop over tiles
//   products.cuh   the products, and the output's way to memory
//   softmax.cuh    the softmax on fragments in registers
//   work.cuh       which rows, which keys
//   pattern.cuh    the same under a pattern of blocks
//   instances/     its instances
//
// Keys that a row does not see have the weight 0. If a value among them is not finite, and they lie
// in one tile with keys that the row does see, the row's output is NaN.
#pragma once

#include <cstdint>

#include "cuda/attention/kernel.h"

namespace tessera::cuda {

// A block computes 128 rows or more, however few there are. Calls with fewer queries than this gain
// nothing from it.
inline constexpr std::int64_t kHopperQueries = 17;

bool hopper_takes(const AttentionRequest& request);
AttentionPlan plan_hopper(const AttentionRequest& request);
void run_hopper(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda
