// LayerNorm and RMSNorm, fused with the residual adds that come before them in a transformer.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <array>

#include "tessera/context.h"
#include "tessera/dropout.h"
#include "tessera/tensor.h"

namespace tessera {

struct NormArgs {
  Tensor x{};                         // [..., n] f32, f16 or bf16
  std::array<Tensor, 3> residuals{};  // none to three, like x; fill the first ones
  Tensor sum{};     // x + residuals, like x; required with residuals, refused without;
                    // may be the same view as x or as a residual
  Tensor weight{};  // [n], of any float dtype
  Tensor bias{};    // layer_norm only, optional [n], of any float dtype
  float eps = 1e-5f;
  Dropout dropout{};  // of x, with residuals only
  Tensor out{};       // like x; may be the same view as x or as a residual, but not as sum
  // A row's bits do not depend on the number of rows, as in LinearArgs::fixed_rows. Always so on
  // the CPU.
  bool fixed_rows = false;
};
// Adds the residuals to x and normalises each row of the sum s, or of x if there are none:
//
//   out = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias
//
// The sum is taken from left to right, ((x + r0) + r1) + r2, and every partial sum is rounded to
// x's dtype: the same bits as separate adds. The norm reads the rounded sum.
//
// With dropout, for training, x is a branch's output (attention, MLP), which is added to the
// residuals. Before the first add, each element of x becomes 0 or x / (1 - p), rounded to x's
// dtype. Which elements are dropped depends on the seed, the row (counted through all leading
// dimensions) and the column. p = 0 gives the bits of a call without dropout.
void layer_norm(Context& ctx, const NormArgs& args);

// The same with another norm: out = s / sqrt(mean(s^2) + eps) * weight
void rms_norm(Context& ctx, const NormArgs& args);

}  // namespace tessera
