// The kernel for dozens to hundreds of tokens on Hopper (panels.cuh), as the host sees it.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/plan/panel_plan.h"

namespace tessera::cuda {

// Whether the kernel takes this call: weights in tiles, activations in f16 or bf16, a GPU of
// compute capability 9.0, gate and up of the same kind, plain matrices (matrix.h).
bool takes_panels(const LinearCall& call);
PanelPlan plan_panels(const LinearCall& call);
void run_panels(const LinearCall& call, const PanelPlan& plan, void* scratch);

}  // namespace tessera::cuda
