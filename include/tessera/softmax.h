// Softmax over the last dimension.
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct SoftmaxArgs {
  Tensor x;           // [..., n] f32, f16 or bf16; -inf gives 0; a row of -inf alone gives zeros
  float scale = 1.f;  // softmax(scale * x)
  Tensor out;         // [..., n] f32, f16 or bf16; may be the same memory as x
};
void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera
