// Changes the dtype of a tensor. tessera/half.h converts single values and host arrays.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct ConvertArgs {
  Tensor x{};    // [...] f32, f16 or bf16
  Tensor out{};  // like x, of f32, f16 or bf16
};
// Writes x to out, rounded to nearest, ties to even. What exceeds f16's range becomes infinity; NaN
// stays NaN.
void convert(Context& ctx, const ConvertArgs& args);

}  // namespace tessera
