// cuda.hopper.decode: few query rows over many keys on Hopper, as the host sees it. f16 and bf16,
// keys and values of 8 bits too, head dims 64, 80 and 128, at most 16 rows for each key head;
// dense, ragged, and pages of a multiple of 16 rows; all masks but patterns, and with holes only
// masks that hide no early keys.
//
//   call.h         the arguments of a kernel
//   decode.cc      from an attention call to those; when the kernel can be used
//   decode.cuh     the kernel, and how its warps work together
//   block.cuh      shared memory and the barriers in it
//   share.cuh      which steps of which sequences a block has
//   fetch.cuh      one warp fetches
//   fetch_scales.cuh    another one fetches the scales of 8 bits
//   compute.cuh    four warps compute, or eight over 8 bits, and merge their results
//   products.cuh   the products of a step
//   code_products.cuh    the same over 8 bits, of
//     code_queries.cuh   the product with the keys
//     code_state.cuh     the running softmax
//     code_values.cuh    the product with the values
//   instances/     its instances
#pragma once

#include <cstdint>

#include "cuda/attention/kernel.h"

namespace tessera::cuda::hopper_decode {

bool takes(const AttentionRequest& request);
bool pays(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
std::int64_t scratch(const AttentionPlan& plan);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace tessera::cuda::hopper_decode
