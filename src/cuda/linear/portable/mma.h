// The kernel for dozens of tokens on any GPU since Ampere (mma.cuh), from the host.
#pragma once

#include <cstdint>

#include "cuda/linear/call.h"
#include "cuda/linear/plan/mma_plan.h"

namespace tessera::cuda {

// A plan, and what it needs beside the blocks.
struct MmaLaunch {
  MmaPlan plan{};
  int shared_bytes = 0;
  std::int64_t scratch_bytes = 0;  // on a boundary of 16 bytes
};

// Whether it takes this call: weights in tiles, activations in f16 or bf16, gate and up of one
// kind; and matrices (matrix.h).
bool takes_mma(const LinearCall& call);
// What there is to do. Plans are made from it.
MmaWork mma_work(const LinearCall& call);
MmaLaunch plan_mma(const LinearCall& call);
// The same with a plan of the caller's.
MmaLaunch mma_launch_of(const MmaWork& work, const MmaPlan& plan);
void run_mma(const LinearCall& call, const MmaLaunch& launch, void* scratch);

}  // namespace tessera::cuda
