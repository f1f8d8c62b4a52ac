// Softmax over the last dimension.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct SoftmaxArgs {
  Tensor x{};         // [..., n] f32, f16 or bf16
  float scale = 1.f;  // softmax(scale * x); positive and finite
  Tensor out{};       // [..., n] f32, f16 or bf16; may be the same view as x
};
// Writes the softmax of each row. -inf gives 0. A row of nothing but -inf gives zeros. A NaN or
// +inf anywhere in a row makes the whole row NaN.
void softmax(Context& ctx, const SoftmaxArgs& args);

}  // namespace tessera
