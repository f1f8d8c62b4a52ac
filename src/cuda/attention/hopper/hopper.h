// The Hopper attention kernels as the host sees them: prefill in f16 or bf16, any head dim that is
// a multiple of 8 up to 256, grouped heads, log-sum-exp, every mask. The blocks of a pattern must
// be made of tiles of 128 x 128. Ragged batches and keys in pages: head dims 64, 80, 96, 128 and
// 256, pages of a multiple of 8 rows without a hole, all masks but patterns.
//
//   tiles.h        tile sizes, and the plan of a call
//   call.h         the arguments of a kernel
//   hopper.cc      from an attention call to those; when the kernels can be used
//   hopper.cuh     the kernel, and how its warpgroups work together
//   block.cuh      shared memory and the barriers in it
//   fetch.cuh      one warpgroup fetches
//   compute.cuh    the others compute: the loop over tiles
//   products.cuh   the products, and the output's way to memory
//   softmax.cuh    the softmax on fragments in registers
//   work.cuh       which rows, which keys
//   pattern.cuh    the same under a pattern of blocks
//   ragged.cuh     the same for sequences of different lengths, and for pages
//   instances/     its instances
//
// A key that a row does not see has the weight 0. If its value is not finite, and its tile also has
// keys that the row sees, the row's output is NaN.
#pragma once

#include <cstdint>

#include "cuda/attention/kernel.h"

namespace tessera::cuda {

// A block computes 128 rows or more, even if a call has fewer. Dense calls with fewer queries than
// this gain nothing. In a ragged or paged batch, this kernel computes every sequence with more rows
// than cuda.split takes, whatever else is in the batch. So its bits do not depend on the batch.
inline constexpr std::int64_t kHopperQueries = 17;

bool hopper_takes(const AttentionRequest& request);
bool hopper_pays(const AttentionRequest& request);
AttentionPlan plan_hopper(const AttentionRequest& request);
void run_hopper(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda
