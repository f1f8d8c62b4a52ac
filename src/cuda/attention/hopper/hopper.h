// The Hopper attention kernels as the host sees them. It is dense prefill: f16 or bf16, any head
// dim that is a multiple of 8 up to 256, grouped heads, log-sum-exp, every mask; patterns of blocks
// where these are made of tiles of 128 x 128.
//
//   hopper_call.h         tile sizes, and what a kernel is launched with
//   hopper.cc             from an attention call to that; when the kernels can be used
//   hopper.cuh            the kernel, and how its warpgroups work together
//   hopper_block.cuh      shared memory and the barriers in it
//   hopper_fetch.cuh      one warpgroup fetches
//   hopper_compute.cuh    the others compute: the walk over tiles
//   hopper_products.cuh   the products, and the output's way to memory
//   hopper_softmax.cuh    the softmax on fragments in registers
//   hopper_work.cuh       which rows, which keys
//   hopper_pattern.cuh    the same under a pattern of blocks
//   hopper_*.cu           its instances
//
// Keys that a row does not see have the weight 0. If a value among them is not finite, and they lie
// in one tile with keys that the row does see, the row's output is NaN.
#pragma once

#include "cuda/attention/call.h"
#include "cuda/runtime/state.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Can the kernels compute this call, on a GPU like this?
bool hopper_takes(const DeviceLimits& gpu, const AttentionArgs& args);
// A block computes 128 rows or more, however few there are. Calls with fewer than these gain
// nothing by it.
inline constexpr std::int64_t kHopperRows = 17;

void launch_hopper(Context& ctx, const AttentionCall& call);

}  // namespace tessera::cuda
