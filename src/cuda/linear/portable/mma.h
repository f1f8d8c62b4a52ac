// The kernel for dozens of tokens on any GPU since Ampere (mma.cuh), as the host sees it.
#pragma once

#include <cstdint>

#include "cuda/linear/call.h"
#include "cuda/linear/plan/mma_plan.h"

namespace tessera::cuda {

// A plan, and its other launch parameters.
struct MmaLaunch {
  MmaPlan plan{};
  int shared_bytes = 0;
  std::int64_t scratch_bytes = 0;  // aligned to 16 bytes
};

// Whether the kernel takes this call: weights in tiles, activations in f16 or bf16, gate and up of
// one kind, plain matrices (matrix.h).
bool takes_mma(const LinearCall& call);
// The work of a call, from which plans are made.
MmaWork mma_work(const LinearCall& call);
MmaLaunch plan_mma(const LinearCall& call);
// The same with the caller's plan.
MmaLaunch mma_launch_of(const MmaWork& work, const MmaPlan& plan);
void run_mma(const LinearCall& call, const MmaLaunch& launch, void* scratch);

}  // namespace tessera::cuda
