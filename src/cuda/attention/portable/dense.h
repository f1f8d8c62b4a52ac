// The dense attention kernel (dense.cuh) as the host sees it: f16 and bf16 on every GPU from sm_80
// on, rows at equal distances, full, causal and window masks.
#pragma once

#include "cuda/attention/call.h"
#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda::dense {

// Can the kernel compute this call, and is it meant for it? Asked of calls that mma.cuh takes.
bool takes(const AttentionArgs& args);

// T is Half or BFloat16; the head dim is at most `dim`.
template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call);

}  // namespace tessera::cuda::dense
