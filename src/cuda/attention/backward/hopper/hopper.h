// The Hopper kernel for the gradients of attention as the host sees it: dense batches in f16 or
// bf16, head dims that are multiples of 8 up to 128, grouped heads; full, causal, window and sink
// masks.
//
//   call.h        the arguments of the kernel
//   hopper.cc     from a call to those; when the kernel can be used
//   block.cuh     shared memory and the barriers in it
//   work.cuh      which keys, which tiles of queries, which pairs see each other
//   fetch.cuh     one warp fetches
//   compute.cuh   two warpgroups compute
//   hopper.cuh    the kernel, and how its warpgroups work together
//   finish.cu     sums of dQ become d_q
//   instances/    its instances
#pragma once

#include "cuda/attention/backward/kernel.h"

namespace tessera::cuda::backward {

// Not for deterministic calls: parts of dQ are added in any order.
bool hopper_takes(const BackwardRequest& request);
void run_hopper(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame);

}  // namespace tessera::cuda::backward
