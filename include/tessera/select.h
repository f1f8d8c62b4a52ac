// The largest elements of each row. Among equal values the lower index comes first. NaN counts as
// larger than every number, so that it is noticed.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct ArgmaxArgs {
  Tensor x{};        // [..., n] f32, f16 or bf16
  Tensor indices{};  // [...] i32 or i64; [1] where x is [n]
};
// Writes the index of each row's largest element.
void argmax(Context& ctx, const ArgmaxArgs& args);

struct TopKArgs {
  Tensor x{};        // [..., n] f32, f16 or bf16
  Tensor values{};   // [..., k] of x's dtype, largest first; k <= n
  Tensor indices{};  // [..., k] i32 or i64
};
// Writes the k largest elements of each row, with their indices.
void top_k(Context& ctx, const TopKArgs& args);

}  // namespace tessera
