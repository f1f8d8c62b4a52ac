// Chooses the kernel of a call by shapes, layouts and one table of measured crossover points. The
// choice includes the plan: nothing is chosen or planned again before the call runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cuda/linear/call.h"
#include "cuda/linear/force.h"
#include "cuda/linear/kernels.h"
#include "tessera/context.h"

namespace tessera::cuda {

struct PlannedKernel {
  const LinearKernel* kernel = nullptr;
  KernelPlan plan{};

  std::int64_t scratch_bytes() const { return kernel->scratch(plan); }
  void run(const LinearCall& call) const { kernel->run(call, plan); }
};

// One of two ways:
//
//   fused    one kernel makes the product, a gated one too, and its epilogue
//   apart    one kernel for each weight makes a bare product in the workspace, in f32 or, from
//            kRoundedTokens on, in the output's dtype; an epilogue pass follows
struct LinearPlan {
  PlannedKernel product{};
  PlannedKernel up{};  // for a gated product that is made apart
  bool apart = false;

  // "cuda.mixed": gate and up by two kernels.
  const char* name() const;
};

LinearPlan plan_linear(const LinearCall& call);

// Numbers of tokens above which another kernel may be chosen.
std::array<std::int64_t, 18> tokens_of_other_kernels(const Product& product);

}  // namespace tessera::cuda
