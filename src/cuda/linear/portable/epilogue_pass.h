// The epilogue of products that were made apart from it.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera::cuda {

// out = act(product + bias) * (up + up_bias) + residual, where everything but the product may be
// missing.
struct EpiloguePass {
  Tensor product{}, up{};    // [M, N], contiguous and aligned; f32 or of out's dtype
  Tensor bias{}, up_bias{};  // [N]
  Activation activation = Activation::none;
  Tensor residual{}, out{};  // of any strides
};
void run_epilogue(Context& ctx, const EpiloguePass& pass);

}  // namespace tessera::cuda
