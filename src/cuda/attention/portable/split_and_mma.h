// The kernels cuda.mma (mma.cuh) and cuda.split (split.cuh), and both together for a ragged batch,
// as rows of the table in choose.cc.
#pragma once

#include "cuda/attention/kernel.h"

namespace tessera::cuda {
namespace mma {

bool takes(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace mma

namespace split {

bool takes(const AttentionRequest& request);
AttentionPlan plan(const AttentionRequest& request);
std::int64_t scratch(const AttentionPlan& plan);
void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);
// The same for a call whose tokens are not in the cache yet.
void run_with_tokens(Context& ctx, const AttentionPlan& plan, const NewTokens& tokens,
                     Workspace::Frame& frame);

// The same for keys and values that are codes and are decoded in registers (split_codes.cuh).
bool takes_codes(const AttentionRequest& request);
AttentionPlan plan_codes(const AttentionRequest& request);

// The same for keys that are rotated in registers as they are read (split_rotated.cuh).
bool takes_rotated(const AttentionRequest& request);
void run_rotated(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

// Runs whichever of the three suits.
void run_few(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

// The same for runs of more rows than a block has, in tiles (QueryTiles).
bool takes_run(const AttentionRequest& request);
bool run_pays(const AttentionRequest& request);
AttentionPlan plan_run(const AttentionRequest& request);

// Runs sequences of few rows by cuda.split, the others by cuda.mma.
bool takes_mixed(const AttentionRequest& request);
AttentionPlan plan_mixed(const AttentionRequest& request);
void run_mixed(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);

}  // namespace split
}  // namespace tessera::cuda
