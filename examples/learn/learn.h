// Eight steps from the formula of attention to a kernel that keeps the tensor cores fed. Each step
// is a file that changes one idea of the file before it; docs/LEARN.md explains them.
//
//   step1_naive.cu                every score in memory, one thread for each
//   step2_tiled.cu                tiles of 64 x 64 in shared memory
//   step3_online_softmax.cu       one kernel, no score ever leaves the chip
//   step4_causal.cu               tiles that no query sees are not visited
//   step5_tensor_cores.cu         products by mma.sync
//   step6_swizzle.cu              no bank conflicts
//   step7_warp_specialisation.cu  one warp fetches while the others compute
//   step8_wgmma.cu                the tensor cores of Hopper
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <span>

#include "tessera/context.h"

namespace tessera::learn {

inline constexpr int kTile = 64;      // rows of queries, and of keys, that are worked on together
inline constexpr int kDim = 64;       // of a head
inline constexpr int kThreads = 128;  // that compute one tile of queries

// out = softmax(q k^T / sqrt(64)) v for each head. A batch is only more heads.
struct Problem {
  const __half *q, *k, *v;  // [heads, tokens, 64], on 16 bytes
  __half* out;              // the same
  float* scores;            // [heads, tokens, tokens], for steps 1 and 2; others do not use it
  int heads, tokens;
  bool causal;  // query i sees the keys 0 .. i

  // The flops of one call, by the usual count: two products over visible pairs.
  double flops() const {
    const double pairs = causal ? 0.5 * tokens * (tokens + 1.0) : 1.0 * tokens * tokens;
    return 4.0 * kDim * heads * pairs;
  }
};

struct Step {
  const char* name;
  const char* idea;
  void (*run)(Context& ctx, const Problem& problem);
  bool causal;           // whether it supports the mask
  bool stores_scores;    // whether it needs Problem::scores
  int capability = 80;   // the GPU's must be at least this; 80 is 8.0
  bool exactly = false;  // it must be exactly this

  bool runs_on(int gpu) const { return exactly ? gpu == capability : gpu >= capability; }
};
// The steps that this build has code for, in the order of the document.
std::span<const Step> steps();

void run_naive(Context& ctx, const Problem& problem);
void run_tiled(Context& ctx, const Problem& problem);
void run_online_softmax(Context& ctx, const Problem& problem);
void run_causal(Context& ctx, const Problem& problem);
void run_tensor_cores(Context& ctx, const Problem& problem);
void run_swizzle(Context& ctx, const Problem& problem);
void run_warp_specialisation(Context& ctx, const Problem& problem);
void run_wgmma(Context& ctx, const Problem& problem);

}  // namespace tessera::learn
