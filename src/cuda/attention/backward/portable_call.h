// The arguments of the portable kernel for the gradients of attention.
#pragma once

#include "cuda/attention/backward/rows.h"
#include "cuda/attention/call.h"
#include "tessera/context.h"

namespace tessera::cuda::backward {

// The arguments besides the call.
struct PortableGradients {
  HeadRows d_out, d_q, d_k, d_v;
  RowValues values;
  bool vectors;
};

// For heads up to `dim`; T is Half or BFloat16.
template <typename T, int dim>
void launch_portable(Context& ctx, const AttentionCall& call, const PortableGradients& gradients);

}  // namespace tessera::cuda::backward
