// The linear layer: out = act(x W^T + bias) + residual, for dense and packed weights.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/context.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera {

// gelu is the exact one (erf); gelu_tanh the approximation that GPT-2 calls gelu_new.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

std::string_view name(Activation activation);

struct LinearArgs {
  Tensor x{};       // [..., in] f32, f16 or bf16
  Weight weight{};  // [out, in]
  Tensor bias{};    // optional [out], of any float dtype
  Activation activation = Activation::none;
  Tensor residual{};  // optional, like out: added after the activation; may be the same view as out
  Tensor out{};       // [..., out] f32, f16 or bf16
  // Normally the number of rows decides the kernel, and with it the order of the sums. If this is
  // not negative, a row's bits do not depend on the number of rows: the first `fixed_rows` are
  // computed like a few rows, the others like many. x is then [rows, in].
  std::int64_t fixed_rows = -1;
};
// Computes `out`, with sums in f32. On a GPU, packed weights are decoded to the dtype of f16 and
// bf16 activations (exact for nvfp4 and mxfp4 in the layout of prepare()).
//
// The output of an op can be x, a dense weight, the bias or the residual of the next one on the
// same Context. Only the memory of a prepared weight, or of one with Weight::constant, must not be
// written again, because a GPU may read it before earlier ops have ended.
void linear(Context& ctx, const LinearArgs& args);

// The first half of a gated MLP in one call: out = act(x Wg^T + bg) * (x Wu^T + bu).
struct GatedLinearArgs {
  Tensor x{};                     // [..., in]
  Weight gate{}, up{};            // [out, in] each
  Tensor gate_bias{}, up_bias{};  // each optional [out], of any float dtype
  Activation activation = Activation::silu;
  Tensor out{};                  // [..., out]
  std::int64_t fixed_rows = -1;  // as in LinearArgs
};
void gated_linear(Context& ctx, const GatedLinearArgs& args);

}  // namespace tessera
