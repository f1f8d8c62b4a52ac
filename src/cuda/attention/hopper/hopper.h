// The Hopper attention kernels as the host sees them: prefill in f16 or bf16, any head dim that is
// a multiple of 8 up to 256, grouped heads, log-sum-exp, every mask. The blocks of a pattern must
// be made of tiles of 128 x 128. Ragged batches and keys in pages: head dims 64, 80, 96, 128 and
// 256, pages of a multiple of 8 rows without a hole, all masks but patterns.
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
//   ragged.cuh     the same in sequences of lengths of their own, and in pages
//   instances/     its instances
//
// Keys that a row does not see have the weight 0. If a value among them is not finite, and they lie
// in one tile with keys that the row does see, the row's output is NaN.
#pragma once

#include <cstdint>

#include "cuda/attention/kernel.h"

namespace tessera::cuda {

// A block computes 128 rows or more, however few there are. Dense calls with fewer queries than
// this gain nothing from it. In a ragged or paged batch a sequence is computed by it if it has more
// rows than cuda.split takes, whatever is beside it: so its bits are the same in any company.
inline constexpr std::int64_t kHopperQueries = 17;

bool hopper_takes(const AttentionRequest& request);
bool hopper_pays(const AttentionRequest& request);
AttentionPlan plan_hopper(const AttentionRequest& request);
void run_hopper(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda
